"""Every case of a body and every scenario over HTTP, against a real service with the reference world loaded."""

import base64
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import version
from typing import Any

import httpx
import pytest

from tests.conftest import BOTH, Database, Running, running
from tests.spec.casebook import (
    Case,
    Expected,
    Scenario,
    cases,
    changed,
    filled,
    from_json,
    part,
    scenarios,
    to_json,
    with_world,
)
from tests.spec.matching import differences
from tests.support import loopback
from tests.support.r4 import parses

STORES = BOTH
JSON = {"content-type": "application/json", "accept": "application/json"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, ready: Database) -> Iterator[Running]:
    """A service of these cases alone: they spend what patients owe, and count what is stored."""
    folder = tmp_path_factory.mktemp("cases")
    with ready(folder) as store, running(folder, world=None, store=store) as found:
        yield found


# What each operation may answer instead of success; 405 is answered to what is no operation at all.
READ, SEARCH, CREATE, UPDATE = (
    {401, 403, 404},
    {400, 401, 403},
    {400, 401, 403, 405, 422},
    {400, 401, 403, 404, 412, 422},
)
OPERATIONS = {
    ("Task", "create"): ("ERR-TASK-CREATE", CREATE),
    ("Task", "read"): ("ERR-TASK-READ", READ),
    ("Task", "update"): ("ERR-TASK-UPDATE", UPDATE),
    ("Task", "search"): ("ERR-TASK-SEARCH", SEARCH),
    ("PaymentNotice", "create"): ("ERR-PAY-CREATE", CREATE),
    ("PaymentNotice", "read"): ("ERR-PAY-READ", READ),
    ("PaymentNotice", "search"): ("ERR-PAY-SEARCH", SEARCH),
    ("Questionnaire", "read"): ("ERR-QNR-READ", READ),
    ("Questionnaire", "search"): ("ERR-QNR-SEARCH", SEARCH),
    ("QuestionnaireResponse", "create"): ("ERR-QR-CREATE", CREATE),
    ("QuestionnaireResponse", "read"): ("ERR-QR-READ", READ),
    ("QuestionnaireResponse", "update"): ("ERR-QR-UPDATE", UPDATE),
    ("QuestionnaireResponse", "search"): ("ERR-QR-SEARCH", SEARCH),
    ("DiagnosticReport", "read"): ("ERR-DR-READ", READ),
    ("DiagnosticReport", "search"): ("ERR-DR-SEARCH", SEARCH),
}
INTERACTIONS = {"POST": ("create", ""), "GET": ("search", "read"), "PUT": ("", "update")}
ADDITIONS = {413, 429}


def undue(response: httpx.Response) -> list[str]:
    """A line when an operation answers what the interface does not list for it."""
    _, resource, *rest = response.request.url.path.split("/")
    interaction = INTERACTIONS.get(response.request.method, ("", ""))[min(len(rest), 1)]
    if (resource, interaction) not in OPERATIONS or len(rest) > 1 or rest == ["_search"]:
        return []
    rule, listed = OPERATIONS[resource, interaction]
    conditional = {412} if "if-none-exist" in response.request.headers else set()
    fine = response.is_success or response.status_code in listed | ADDITIONS | conditional
    return [] if fine else [f"{rule} does not list {response.status_code}"]


def agree(expected: Any, actual: Any, words: dict[str, str]) -> None:
    found = differences(expected, actual, words)
    assert not found, "\n".join(found)


# --- Cases of bodies ------------------------------------------------------------------------------


def in_order(found: Iterable[Case | Scenario], pays: Callable[[Any], bool]) -> list[Any]:
    """As parameters. Those that pay rest on what patients owe after the ones before them."""
    return [pytest.param(each, id=each.id, marks=[pytest.mark.on_both] * pays(each)) for each in found]


@pytest.mark.parametrize("case", in_order(cases(), lambda case: case.resource == "PaymentNotice"))
def test_the_service_answers_as_the_case_expects(service: Running, case: Case) -> None:
    """ERR-01, ERR-02, COMMON-53, TASK-02, PAY-02, QR-02: an outcome, a read and a search are R4."""
    words = {"base_url": service.url}
    words["id"] = created(service, case) if case.interaction == "update" else ""
    path = f"/{case.resource}/{words['id']}"
    before = service.client.get(path).content if words["id"] else b""
    method = "PUT" if words["id"] else "POST"
    sent = case.text(service.url, words["id"]).encode()
    response = service.client.request(method, path.rstrip("/"), content=sent, headers=JSON)
    assert response.headers["content-type"] == "application/json"
    assert not undue(response)
    if case.expected.outcome:
        refused(case.expected, response, words)
        parses(response)
        assert not words["id"] or service.client.get(path).content == before
        return
    assert (response.status_code, response.content) == (200 if words["id"] else 201, b"null"), response.text
    if not words["id"]:
        words["id"] = id_in(response, service.url, case.resource)
    if case.read:
        shown(service, case, words)


def stored(service: Running, case: Case) -> str:
    """The id of the resource that an accepted case leaves."""
    resource_id = created(service, case) if case.interaction == "update" else ""
    body = case.text(service.url, resource_id).encode()
    path = f"/{case.resource}/{resource_id}".rstrip("/")
    response = service.client.request("PUT" if resource_id else "POST", path, content=body, headers=JSON)
    assert response.is_success, response.text
    return resource_id or id_in(response, service.url, case.resource)


def created(service: Running, case: Case) -> str:
    """The id of a new resource from the base that an update starts from."""
    sent = to_json(filled(case.stored, base_url=service.url)).encode()
    response = service.client.post(f"/{case.resource}", content=sent, headers=JSON)
    assert response.status_code == 201, response.text
    return id_in(response, service.url, case.resource)


def id_in(response: httpx.Response, base_url: str, resource: str) -> str:
    """The id in the `location` of a create."""
    location = response.headers["location"]
    agree(f"{base_url}/{resource}/{{uuid}}", location, {})
    return str(location.rpartition("/")[2])


def refused(expected: Expected, response: httpx.Response, words: dict[str, str]) -> None:
    """ERR-03, ERR-06, ERR-07: the response is the whole outcome expected, and tells nothing of the body's text."""
    body = from_json(response.content)
    assert response.status_code == expected.row["status"], response.text
    if expected.expression is None:
        body["issue"][0].pop("expression", None)
    agree(expected.body, body, words)
    assert "Quill" not in response.text


def shown(service: Running, case: Case, words: dict[str, str]) -> None:
    """A read and a search show the stored resource as the case expects, and alike."""
    read = service.client.get(f"/{case.resource}/{words['id']}")
    assert read.status_code == 200, read.text
    agree(filled(case.read, base_url=service.url), from_json(read.content), words)
    found = service.client.get(f"/{case.resource}?_id={words['id']}")
    parses(read)
    parses(found)
    assert from_json(found.content)["entry"] == [{"resource": from_json(read.content)}]


# --- Scenarios ------------------------------------------------------------------------------------


class Caller:
    """Sends the steps of a scenario; knows the words that they name and the tokens of each scope."""

    def __init__(self, service: Running, client: dict[str, str]) -> None:
        self.service = service
        basic = base64.b64encode(f"{client['client_id']}:{client['client_secret']}".encode()).decode()
        self.client = {name: client[name] for name in ("client_id", "client_secret")}
        self.words = self.client | {
            "base_url": service.url,
            "basic": f"Basic {basic}",
            "unique": uuid.uuid4().hex,
            "version": version("chartferry"),
        }
        self.kept: dict[str, Any] = {}
        self.token_of_scope = cache(self._token_of_scope)

    def _token_of_scope(self, scope: str) -> str:
        form = {"grant_type": "client_credentials", "scope": scope} | self.client
        response = loopback.post(f"{self.service.url}/auth/token", data=form)
        assert response.status_code == 200, response.text
        return f"Bearer {response.json()['access_token']}"

    def send(self, step: dict[str, Any]) -> httpx.Response:
        method, _, target = filled(step["send"], **self.words).partition(" ")
        url = target if target.startswith("http") else f"{self.service.url}{target}"
        content, headers = self.body_of(step)
        headers |= {"accept": "application/json"} | filled(step.get("headers", {}), **self.words)
        headers |= self.authorization(step)
        sent = httpx.Headers([(name.encode(), value.encode()) for name, value in headers.items() if value is not None])
        return loopback.request(method, url, content=content, headers=sent, timeout=30)

    def authorization(self, step: dict[str, Any]) -> dict[str, str]:
        if "scope" in step:
            return {"authorization": self.token_of_scope(step["scope"])}
        token = filled(step.get("token", self.service.headers["authorization"]), **self.words)
        return {} if token == "none" else {"authorization": token}

    def body_of(self, step: dict[str, Any]) -> tuple[bytes | Iterator[bytes] | None, dict[str, str | None]]:
        if "form" in step:
            form = httpx.QueryParams({name: str(value) for name, value in filled(step["form"], **self.words).items()})
            return str(form).encode(), {"content-type": "application/x-www-form-urlencoded"}
        if "chunked" in step:
            return (b" " * 65536 for _ in range(int(step["chunked"]) // 65536)), {"content-type": "application/json"}
        if "raw" in step:
            return step["raw"].encode(), {"content-type": "application/json"}
        if "json" not in step:
            return None, {}
        text = to_json(filled(step["json"], **self.words)).encode()
        return text + b" " * (int(step.get("pad", 0)) - len(text)), {"content-type": "application/json"}


@pytest.fixture(scope="module")
def credentials(service: Running) -> dict[str, str]:
    """A client of the scenarios' own."""
    found: dict[str, str] = service.service.auth.add_client("scenarios")
    return found


@pytest.mark.parametrize("scenario", in_order(scenarios(), lambda each: "PaymentNotice" in str(each.steps)))
def test_the_service_answers_each_step(service: Running, credentials: dict[str, str], scenario: Scenario) -> None:
    """COMMON-01, COMMON-53, QNR-02, DR-03, BUNDLE-01, EXTRA-01: every resource in an answer is R4."""
    caller = Caller(service, credentials)
    problems = []
    for step in scenario.steps:
        response = caller.send(step)
        found = [line for check in CHECKS for line in check(step, response, caller)]
        problems += [f"{step['send']}: {line}" for line in found]
        keep(step, response, caller)
        if b'"resourceType"' in response.content:
            parses(response)
    assert not problems, "\n".join(problems)


def keep(step: dict[str, Any], response: httpx.Response, caller: Caller) -> None:
    """Remembers what later steps name."""
    for name, source in step.get("keep", {}).items():
        if source == "body":
            caller.kept[name] = from_json(response.content)
        elif source == "location":
            caller.words[name] = response.headers.get("location", "").rpartition("/")[2]
        elif source.startswith("header "):
            caller.words[name] = response.headers.get(source.removeprefix("header "), "")
        else:
            caller.words[name] = str(part(from_json(response.content), source))


def _status(step: dict[str, Any], response: httpx.Response, _: Caller) -> list[str]:
    same = response.status_code == step["status"]
    return [] if same else [f"expected {step['status']}, got {response.status_code} {response.text[:300]}"]


def _headers(step: dict[str, Any], response: httpx.Response, caller: Caller) -> list[str]:
    lines = []
    for name, value in step.get("headers_are", {}).items():
        lines += differences(value, response.headers.get(name), caller.words, name)
    if "allow" in step:
        given = {method.strip() for method in response.headers.get("allow", "").split(",")}
        if given - {"HEAD", "OPTIONS"} != set(step["allow"]):
            lines.append(f"allow: expected {step['allow']}, got {response.headers.get('allow')}")
    return lines


def _text(step: dict[str, Any], response: httpx.Response, _: Caller) -> list[str]:
    lines = [f"holds {word}" for word in step.get("lacks", ()) if word in response.text]
    lines += [f"lacks {word}" for word in step.get("holds", ()) if word not in response.text]
    if "text" in step and response.text != step["text"]:
        lines.append(f"expected {step['text']!r}, got {response.text[:300]!r}")
    return lines


def _body(step: dict[str, Any], response: httpx.Response, caller: Caller) -> list[str]:
    if "body" in step:
        expected = with_world(step["body"])
    elif "world" in step:
        expected = with_world({"world": step["world"], "set": step.get("set")})
    elif "equals" in step:
        expected = changed(caller.kept[step["equals"]], step.get("set"))
    elif step.get("outcome") or step.get("unknown"):
        return _outcome(step, response, caller)
    else:
        return []
    return differences(expected, from_json(_SNAPSHOT.sub(b"", response.content)), caller.words)


# Over PostgreSQL, links also carry what the first page saw (BUNDLE-07).
_SNAPSHOT = re.compile(rb"(?<=\d)&_snapshot=[0-9a-f.\-]+")


def _outcome(step: dict[str, Any], response: httpx.Response, caller: Caller) -> list[str]:
    """The whole outcome. 401, 403, 404, 405, 412 and 413 need not say more than the Errors table."""
    if "unknown" in step:
        issue = {"severity": "error", "code": "not-found", "details": {"text": step["unknown"]}}
        expected: dict[str, Any] = {"resourceType": "OperationOutcome", "issue": [issue]}
    else:
        expected = Expected(step["outcome"], expression=step.get("expression"), names=step.get("names")).body
    body = from_json(response.content)
    issue, given = expected["issue"][0], (part(body, "issue[0]") or {})
    if step.get("expression", "any") == "any":
        issue.pop("expression", None)
        given.pop("expression", None)
    if response.status_code not in (400, 422) and "names" not in step:
        issue.pop("diagnostics", None)
        given.pop("diagnostics", None)
    return differences(expected, body, caller.words)


def _parts(step: dict[str, Any], response: httpx.Response, caller: Caller) -> list[str]:
    lines = []
    for path, value in step.get("parts", {}).items():
        lines += differences(value, part(from_json(_SNAPSHOT.sub(b"", response.content)), path), caller.words, path)
    if "issue" in step and part(from_json(response.content), "issue[0].code") != step["issue"]:
        lines.append(f"expected an outcome of {step['issue']}, got {response.text[:300]}")
    return lines


def _ids(step: dict[str, Any], response: httpx.Response, caller: Caller) -> list[str]:
    if "ids" not in step and "sorted_ids" not in step:
        return []
    body = from_json(response.content)
    ids = [entry["resource"]["id"] for entry in body.get("entry", ())]
    if "sorted_ids" in step:
        expected = sorted(ids, reverse=step["sorted_ids"] == "descending")
        return [] if ids == expected and len(ids) > 1 else [f"ids are not {step['sorted_ids']}: {ids}"]
    expected = filled(step["ids"], **caller.words)
    lines = [] if ids == expected else [f"expected {expected}, got {ids}"]
    return lines if body["total"] == len(expected) else [*lines, f"total is {body['total']}"]


def _listed(_: dict[str, Any], response: httpx.Response, __: Caller) -> list[str]:
    return undue(response)


CHECKS = (_status, _headers, _text, _body, _parts, _ids, _listed)


def test_ids_of_the_service_are_lower_case_uuids(service: Running) -> None:
    """COMMON-22: and no two are alike."""
    bundle = from_json(service.client.get("/Task?_count=100").content)
    ids = [entry["resource"]["id"] for entry in bundle.get("entry", ())]
    assert len(set(ids)) == len(ids)
    for found in ids:
        agree("{uuid}", found, {})
