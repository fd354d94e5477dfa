"""Record how HAPI FHIR answers what an import asks of it: `make record-hapi`, into `exchanges.ndjson` beside this file.

usage: python -m tests.hapi.record [BASE_URL]

Without an address a server is built and started. One that is named needs the samples' reference data, by `chartferry
reference load data/samples/reference`. One exchange a line: `what`, `request`, `response`; the server is `BASE`.
"""

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx

from pipelines.client.client import conditional_bundle
from tests.hapi.server import scratch, serving

EXCHANGES = Path(__file__).with_name("exchanges.ndjson")
KEPT_HEADERS = ("etag", "last-modified", "location", "content-location", "content-type", "date")
HEADERS = {"content-type": "application/fhir+json", "accept": "application/json", "cache-control": "no-cache"}
SYSTEM = "urn:chartferry:recorded"
TYPES = ("Patient", "Claim", "Questionnaire", "PaymentNotice", "QuestionnaireResponse", "Task")
Body = dict[str, Any]


class Recorder:
    """Sends requests, and keeps each with its answer. run: a name that no earlier recording has used."""

    def __init__(self, base: str) -> None:
        self.base, self.run = base.rstrip("/"), uuid.uuid4().hex[:8]
        self.kept: list[Body] = []

    def ask(self, what: str, method: str, path: str, body: Any = None, **headers: str) -> Body:
        """Send one request and keep the exchange; return the body of the answer."""
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = httpx.request(
            method,
            f"{self.base}{path}",
            content=content,
            headers=HEADERS | sent,
            timeout=120,
            trust_env=False,
        )
        said: Body = answer.json() if answer.content else {}
        request: Body = {"method": method, "path": path, **({"headers": sent} if sent else {})}
        if content is not None:
            request["body"] = json.loads(content)
        shown = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
        response = {"status": answer.status_code, "headers": shown, "body": cut(said)}
        self.kept.append({"what": what, "request": request, "response": response})
        return said

    def task(self, name: str, **more: Any) -> Body:
        """A task of the samples' first patient, with its identifier."""
        body = {"resourceType": "Task", "status": "requested", "intent": "unknown", "description": f"Call about {name}"}
        about = {"for": {"reference": "Patient/p001"}, "requester": {"reference": "Practitioner/dr-01"}}
        return {**body, **about, "identifier": [{"system": SYSTEM, "value": self.value(name)}], **more}

    def value(self, name: str) -> str:
        return f"{self.run}-{name}"

    def condition(self, name: str) -> str:
        return f"identifier={SYSTEM}|{self.value(name)}"

    def bundle(self, *names: str, **more: Any) -> Body:
        """A transaction of conditional creates of tasks, as the import sends it."""
        entries = [(json.dumps(self.task(name, **more)), json.dumps(self.condition(name))) for name in names]
        made: Body = json.loads(conditional_bundle("Task", entries, "transaction"))
        return made


def cut(body: Body) -> Body:
    """A statement without the types and operations that no import reads; anything else as it is."""
    if body.get("resourceType") != "CapabilityStatement":
        return body
    rest = body["rest"][0]
    names = ("type", "interaction", "conditionalCreate", "updateCreate", "searchParam")
    shown = [{name: each[name] for name in names if name in each} for each in rest["resource"] if each["type"] in TYPES]
    about = {name: body[name] for name in ("resourceType", "fhirVersion", "software", "implementation")}
    return {**about, "rest": [{"mode": "server", "interaction": rest["interaction"], "resource": shown}]}


def record(base: str) -> list[Body]:
    """Ask a server all that an import asks, and return the exchanges."""
    asked = Recorder(base)
    asked.ask("metadata, cut to what an importer reads", "GET", "/metadata")
    asked.ask("conditional create, none there", "POST", "/Task", asked.task("a"), if_none_exist=asked.condition("a"))
    asked.ask("conditional create, one there", "POST", "/Task", asked.task("a"), if_none_exist=asked.condition("a"))
    asked.ask("create under an identifier that is there", "POST", "/Task", asked.task("a"))
    asked.ask(
        "conditional create, which HAPI remembers", "POST", "/Task", asked.task("a"), if_none_exist=asked.condition("a")
    )
    for what in ("create of a task", "create of another under its identifier"):
        asked.ask(what, "POST", "/Task", asked.task("z"))
    asked.ask("conditional create, two there", "POST", "/Task", asked.task("z"), if_none_exist=asked.condition("z"))
    asked.ask("transaction of conditional creates, none there", "POST", "/", asked.bundle("b", "c", "d"))
    asked.ask("transaction of conditional creates, some there", "POST", "/", asked.bundle("b", "c", "e", "f"))
    absent = {"for": {"reference": "Patient/nobody"}}
    asked.ask("transaction, one entry names a patient who is not there", "POST", "/", asked.bundle("g", **absent))
    twice = asked.bundle("h", "h")
    for entry in twice["entry"]:
        del entry["fullUrl"]
    asked.ask("transaction, the same condition twice", "POST", "/", twice)
    asked.ask("transaction, one condition matches two", "POST", "/", asked.bundle("z"))
    several = f"/Task?identifier={SYSTEM}|{asked.value('b')},{SYSTEM}|{asked.value('c')}&_count=10"
    asked.ask("search by several identifiers", "GET", several)
    page = asked.ask("search by a system alone", "GET", f"/Task?identifier={SYSTEM}|&_count=2&_total=accurate")
    following = next(link["url"] for link in page["link"] if link["relation"] == "next")
    asked.ask("its next page", "GET", following.removeprefix(asked.base))
    asked.ask(
        "search by the last change, cut to elements", "GET", "/Task?_lastUpdated=ge2020-01-01&_elements=for&_count=1"
    )
    [entry, *_] = asked.ask("search without a total", "GET", "/Task?_count=1&_sort=_id")["entry"]
    name, tag = entry["resource"]["id"], entry["resource"]["meta"]["versionId"]
    changed = {**entry["resource"], "description": f"Call twice {asked.run}"}
    asked.ask("update with the right version", "PUT", f"/Task/{name}", changed, if_match=f'W/"{tag}"')
    asked.ask("update with an old version", "PUT", f"/Task/{name}", changed, if_match=f'W/"{tag}"')
    patient = {"resourceType": "Patient", "id": f"rec-{asked.run}", "active": True}
    asked.ask("put under an id that is not there", "PUT", f"/Patient/rec-{asked.run}", patient)
    asked.ask("read what is not there", "GET", "/Task/nobody")
    asked.ask("claims of two patients", "GET", "/Claim?patient=Patient/p001,Patient/p002&_count=1&_total=accurate")
    return asked.kept


def main() -> None:
    if len(sys.argv) > 1:
        write(sys.argv[1])
        return
    with scratch() as folder, serving(folder) as hapi:
        write(hapi.url)


def write(base: str) -> None:
    """Record a server into the file."""
    lines = (json.dumps(each, ensure_ascii=False).replace(base.rstrip("/"), "BASE") for each in record(base))
    EXCHANGES.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{EXCHANGES}: recorded")


if __name__ == "__main__":
    main()
