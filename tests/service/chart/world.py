"""A service with a browser at its chart, and how a page is read."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx

from tests.conftest import FROZEN, Database, Running, running
from tests.support import loopback

VENDOR = "http://example.com"
INTERNAL = "http://schemas.demo.example.com/fhir/systems/internal"
MARKUP = '<script>alert("x")</script>&amp;{{ 7 * 7 }}'

VOID = ("meta", "link", "input")


class Tree(HTMLParser):
    """A page as a tree. Fails where a tag is not closed, which would be text that became markup, or a slip of ours."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._builder, self._open = ET.TreeBuilder(), [""]
        self._builder.start("page", {})
        self.feed(text)
        self.close()
        assert self._open == [""]
        self._builder.end("page")
        self.root = self._builder.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._builder.start(tag, {name: value or "" for name, value in attrs})
        if tag in VOID:
            self._builder.end(tag)
        else:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self._builder.end(tag)

    def handle_data(self, data: str) -> None:
        self._builder.data(data)


def text_of(element: ET.Element | None) -> str:
    """The text of an element, a space between its parts, white space evened out."""
    assert element is not None
    return " ".join(" ".join(element.itertext()).split()).replace(" , ", ", ")


def section(page: httpx.Response, heading: str) -> ET.Element:
    """The section of a page with the heading of this id."""
    assert page.status_code == 200, page.text
    found = Tree(page.text).root.find(f".//section[@aria-labelledby='{heading}']")
    assert found is not None
    return found


def element(page: httpx.Response, id: str) -> ET.Element | None:
    return Tree(page.text).root.find(f".//*[@id='{id}']")


def rows(table: ET.Element) -> list[list[str]]:
    return [[text_of(cell) for cell in row] for row in table.iterfind(".//tbody/tr")]


class World:
    """A service with a browser that has signed in, and ways to record things."""

    def __init__(self, found: Running) -> None:
        self.running, self.client, self.opened = found, found.client, ExitStack()
        self.browser = self.signed_in()

    def close(self) -> None:
        self.opened.close()

    def stranger(self, **options: Any) -> httpx.Client:
        """A browser that has not signed in."""
        return self.opened.enter_context(loopback.Client(base_url=self.running.url, timeout=30, **options))

    def signed_in(self, scope: str = "system/*.cruds", **form: str) -> httpx.Client:
        browser = self.stranger()
        answer = self.sign_in(browser, scope, **form)
        assert answer.status_code == 303, answer.text
        return browser

    def sign_in(self, browser: httpx.Client, scope: str, **form: str) -> httpx.Response:
        client = self.running.service.auth.add_client("Reader <1>", scope)
        self.client_id = client["client_id"]
        credentials = {"client_id": client["client_id"], "client_secret": client["client_secret"]}
        return browser.post("/chart", data=credentials | form)

    def post(self, kind: str, body: dict[str, Any]) -> str:
        answer = self.client.post(f"/{kind}", json={"resourceType": kind} | body)
        assert answer.status_code == 201, answer.text
        return answer.headers["location"].rpartition("/")[2]

    def task(self, patient: str | None = "p5", **more: Any) -> str:
        body = {"status": "requested", "intent": "unknown", "description": "Call back"}
        body |= {"requester": {"reference": "Practitioner/dr1"}} | more
        return self.post("Task", body | ({"for": {"reference": f"Patient/{patient}"}} if patient else {}))

    def pay(self, value: float, patient: str = "p1", claim: str | None = None) -> str:
        body: dict[str, Any] = {"status": "active", "request": {"reference": f"Patient/{patient}"}}
        body |= {"created": "2024-01-01", "payment": {}, "recipient": {}, "amount": {"value": value, "currency": "USD"}}
        part: dict[str, Any] = {"url": "claim", "valueReference": {"reference": f"Claim/{claim}"}}
        copayment: dict[str, Any] = {"url": "http://schemas.example.com/fhir/copayment-claims", "extension": [part]}
        return self.post("PaymentNotice", body | ({"extension": [copayment]} if claim else {}))

    def answer(self, patient: str = "p5", items: list | None = None, **more: Any) -> str:
        items = items or [{"linkId": "remarks", "answer": [{"valueString": "Tired"}]}]
        address = f"{self.running.service.site.base_url}/Questionnaire/q-intake"
        body: dict[str, Any] = {"status": "completed", "questionnaire": address}
        body |= {"subject": {"reference": f"Patient/{patient}"}, "item": items}
        return self.post("QuestionnaireResponse", body | more)


@contextmanager
def world_in(folder: Path, ready: Database) -> Iterator[World]:
    with (
        ready(folder) as store,
        running(folder, world=None, store=store, clock=lambda: FROZEN) as found,
        closing(World(found)) as made,
    ):
        yield made


FULL = {
    "description": "Call about <results>\nbefore noon",
    "owner": {"reference": "Practitioner/dr2"},
    "restriction": {"period": {"end": "2026-02-28"}},
    "extension": [
        {"url": "http://schemas.example.com/fhir/extensions/task-group", "valueReference": {"reference": "Group/g1"}}
    ],
    "input": [{"type": {"text": "label"}, "valueString": "urgent & new"}],
    "note": [
        {
            "text": "Left a message",
            "time": "2026-02-27T08:05:00Z",
            "authorReference": {"reference": "Practitioner/DR.3"},
        }
    ],
}
FACTS = (
    "Call about <results> before noon",
    "Per Lindqvist",
    "Ngozi Okafor",
    "Front desk",
    "urgent & new",
    "28 Feb 2026",
)
COMMENT = "Yui Tanaka, 27 Feb 2026 08:05 Left a message"
