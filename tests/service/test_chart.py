"""The chart: what its pages show of what was recorded, to whom, and how the way in is kept."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx
import pytest

from fhir_service.app import create_app
from fhir_service.chart.answers import displayed, enabled, holds
from fhir_service.chart.pages import moment, money
from fhir_service.chart.session import goal
from fhir_service.reference import load
from fhir_service.service import Service
from fhir_service.settings import Settings
from tests.conftest import BOTH, FROZEN, WORLD, Database, Running, running

STORES = BOTH
VENDOR = "http://example.com"
INTERNAL = "http://schemas.demo.example.com/fhir/systems/internal"
MARKUP = '<script>alert("x")</script>&amp;{{ 7 * 7 }}'


# --- What is displayed ----------------------------------------------------------------------------

YES, NO = ({"system": VENDOR, "code": code, "display": "as sent"} for code in "YN")
SAID_YES = [{"valueCoding": YES}]


@pytest.mark.parametrize(
    ("condition", "answers", "expected"),
    [
        ({"operator": "=", "answerCoding": YES}, SAID_YES, True),
        ({"operator": "=", "answerCoding": YES | {"display": "Yes"}}, SAID_YES, True),
        ({"operator": "=", "answerCoding": YES | {"system": INTERNAL}}, SAID_YES, False),
        ({"operator": "=", "answerCoding": NO}, SAID_YES, False),
        ({"operator": "=", "answerCoding": NO}, [*SAID_YES, {"valueCoding": NO}], True),
        ({"operator": "=", "answerCoding": YES}, [], False),
        ({"operator": "=", "answerCoding": YES}, [{"valueString": "Y"}], False),
        ({"operator": "=", "answerString": "a"}, [{"valueString": "a"}], True),
        ({"operator": "=", "answerString": "a"}, [{"valueString": "A"}], False),
        ({"operator": "!=", "answerCoding": NO}, SAID_YES, True),
        ({"operator": "!=", "answerCoding": YES}, SAID_YES, False),
        ({"operator": "!=", "answerCoding": YES}, [{"valueCoding": NO}, *SAID_YES], False),
        ({"operator": "!=", "answerCoding": YES}, [], True),
        ({"operator": "!=", "answerString": "a"}, [{"valueString": "b"}], True),
        ({"operator": "exists", "answerBoolean": True}, SAID_YES, True),
        ({"operator": "exists", "answerBoolean": True}, [], False),
        ({"operator": "exists", "answerBoolean": False}, [], True),
        ({"operator": "exists", "answerBoolean": False}, SAID_YES, False),
        ({"operator": "exists"}, SAID_YES, True),
        ({"operator": "not_exists", "answerBoolean": False}, [], True),
        ({"operator": "not_exists", "answerBoolean": False}, SAID_YES, False),
    ],
)
def test_a_condition_holds(condition: dict, answers: list, expected: bool) -> None:
    """CHART-12."""
    assert holds({"question": "q"} | condition, answers) is expected


@pytest.mark.parametrize(
    ("behavior", "answered", "expected"),
    [
        ("all", "ab", True),
        ("all", "a", False),
        ("any", "b", True),
        ("any", "", False),
        (None, "ab", True),
        (None, "a", False),
    ],
)
def test_several_conditions_are_joined_by_all_or_any(behavior: str | None, answered: str, expected: bool) -> None:
    """CHART-12."""
    conditions = [{"question": q, "operator": "exists", "answerBoolean": True} for q in "ab"]
    item = {"linkId": "c", "enableWhen": conditions} | ({"enableBehavior": behavior} if behavior else {})
    assert enabled(item, {q: [{"valueString": "x"}] for q in answered}) is expected


def test_an_item_without_conditions_is_displayed() -> None:
    assert enabled({"linkId": "a"}, {})


def shows(question: str, operator: str = "exists", **value: Any) -> dict[str, Any]:
    return {"enableWhen": [{"question": question, "operator": operator} | (value or {"answerBoolean": True})]}


FORM = {
    "item": [
        {"linkId": "a", "type": "text", "text": "A"},
        {"linkId": "g", "type": "group", "text": "G", "item": [{"linkId": "b", "type": "text", "text": "B"}]}
        | shows("a"),
        {"linkId": "c", "type": "text", "text": "C"} | shows("b"),
        {"linkId": "d", "type": "display", "text": "D"},
        {"linkId": "e", "type": "group", "text": "E", "item": [{"linkId": "f", "type": "text"} | shows("nothing")]},
    ]
}


def filled(**answers: str) -> dict[str, Any]:
    return {"item": [{"linkId": link, "answer": [{"valueString": text}]} for link, text in answers.items()]}


def outline(display: Any) -> list[Any]:
    return [(item.text, item.answers, outline(item)) for item in display.items]


def test_answers_stand_in_the_order_of_the_questionnaire_and_groups_without_anything_to_show_are_left_out() -> None:
    found = displayed(FORM, filled(c="3", b="2", a="1"))
    assert outline(found) == [
        ("A", ("1",), []),
        ("G", (), [("B", ("2",), [])]),
        ("C", ("3",), []),
        ("D", (), []),
    ]
    assert found.hidden == 0


def test_an_answer_that_is_not_displayed_is_counted_and_fulfils_no_condition() -> None:
    """CHART-12: B lies in a group whose condition does not hold, so C is not displayed either."""
    found = displayed(FORM, filled(b="2", c="3"))
    assert outline(found) == [("A", (), []), ("D", (), [])]
    assert found.hidden == 2


def test_a_coding_sent_under_other_words_than_its_option_shows_both() -> None:
    question = {"linkId": "a", "type": "choice", "answerOption": [{"valueCoding": YES | {"display": "Yes"}}]}
    item = {"linkId": "a", "answer": [{"valueCoding": YES | {"display": "No!"}}, {"valueCoding": NO}]}
    (shown,) = displayed({"item": [question]}, {"item": [item]}).items
    assert shown.answers == ("No! (option: Yes)", "as sent")


def test_values_are_shown_as_a_person_reads_them() -> None:
    assert [money(cents) for cents in (0, 5, -1, 123_456_789)] == ["$0.00", "$0.05", "\u2212$0.01", "$1,234,567.89"]
    assert moment("2024-03-05T14:30:59.123456+00:00") == "05 Mar 2024 14:30"
    assert [moment(text) for text in ("2024", "2024-03", "2024-03-05")] == ["2024", "2024-03", "05 Mar 2024"]
    assert moment("0999-01-02") == "0999-01-02"


@pytest.mark.parametrize(
    "text",
    ["//evil.example", "https://evil.example/", "/tasks/../../x", "/tasks/a b", "/sign-out", "tasks", "/tasks/a\n"],
)
def test_a_sign_in_leads_nowhere_but_to_pages_of_the_chart(text: str) -> None:
    assert goal(text) == ""
    assert goal("/tasks/a-1") == "/tasks/a-1"


# --- Pages ----------------------------------------------------------------------------------------

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
        return self.opened.enter_context(httpx.Client(base_url=self.running.url, timeout=30, **options))

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
def world_in(folder: Path, database: Database) -> Iterator[World]:
    with (
        database(folder) as store,
        running(folder, store=store, clock=lambda: FROZEN) as found,
        closing(World(found)) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, database: Database) -> Iterator[World]:
    """A service for tests that only add to it, each about patients or records of its own."""
    with world_in(tmp_path_factory.mktemp("chart"), database) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path, database: Database) -> Iterator[World]:
    with world_in(tmp_path, database) as made:
        yield made


# --- Tasks ---

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


def test_a_task_is_shown_with_all_it_says_in_the_chart_in_the_panel_and_by_its_permalink(fresh: World) -> None:
    """CHART-01, CHART-02, CHART-04, CHART-05."""
    task_id = fresh.task("p5", **FULL)
    task = fresh.client.get(f"/Task/{task_id}").json()
    permalink = next(e["valueString"] for e in task["extension"] if e["url"].endswith("task-permalink"))
    assert permalink.startswith(fresh.running.url)
    own = fresh.browser.get(permalink)
    chart = element(fresh.browser.get("/chart/patients/p5"), f"task-{task_id}")
    panel = element(fresh.browser.get("/chart/tasks"), f"task-{task_id}")
    for shown in (Tree(own.text).root.find(".//main"), chart, panel):
        for fact in (*FACTS, COMMENT, "Open", "Overdue"):
            assert fact in text_of(shown)
    assert "Eve Quill-Five" in text_of(panel)
    assert "Eve Quill-Five" in text_of(Tree(own.text).root.find(".//main"))


def test_cancelled_and_completed_tasks_stay_in_the_chart_and_leave_the_panel(world: World) -> None:
    """CHART-03."""
    made = {status: world.task("p6", status=status) for status in ("completed", "cancelled")}
    chart, panel = world.browser.get("/chart/patients/p6"), world.browser.get("/chart/tasks")
    for status, task_id in made.items():
        shown = text_of(element(chart, f"task-{task_id}"))
        assert status.capitalize() in shown
        assert "Overdue" not in shown
        assert element(panel, f"task-{task_id}") is None


def test_a_task_without_a_patient_is_in_the_panel_only(world: World) -> None:
    """CHART-03."""
    task_id = world.task(None)
    assert element(world.browser.get("/chart/tasks"), f"task-{task_id}") is not None
    patients = [f"p{number}" for number in (1, 2, 3, 5, 6, 7)]
    assert all(task_id not in world.browser.get(f"/chart/patients/{patient}").text for patient in patients)
    assert "Task without a patient" in world.browser.get(f"/chart/tasks/{task_id}").text


def test_open_tasks_come_by_due_date_in_pages_that_hold_each_once(fresh: World) -> None:
    """CHART-02."""
    dues = [f"2026-05-{day:02}" for day in range(1, 31)]
    for due in reversed(dues):
        fresh.task("p5", description=due, restriction={"period": {"end": due}})
    fresh.task("p5", description="no due date")
    pages = [fresh.browser.get(f"/chart/tasks?page={number}") for number in (1, 2, 9)]
    found = [[row[0] for row in rows(Tree(page.text).root)] for page in pages]
    assert found[0] + found[1] == [*dues, "no due date"]
    assert found[2] == found[1]
    assert [len(page) for page in found] == [25, 6, 6]
    assert "1 to 25 of 31 tasks" in text_of(Tree(pages[0].text).root)


# --- Money ---


def test_receipts_and_charges_explain_the_balance_to_the_cent(fresh: World) -> None:
    """CHART-06, CHART-07, CHART-08: charges of 100.00 (c1) and 50.25 (c2), a copayment for the later one first."""
    fresh.pay(30, claim="c2")
    fresh.pay(110.25)
    page = fresh.browser.get("/chart/patients/p1")
    assert rows(section(page, "receipts")) == [
        [
            "01 Mar 2026 12:30",
            "$110.25",
            "Payment",
            "Automation user",
            "Claim c1 $100.00 Claim c2 $10.25",
            "$10.00",
        ],
        ["01 Mar 2026 12:30", "$30.00", "Copayment for Claim c2", "Automation user", "Claim c2 $30.00", "$120.25"],
    ]
    assert rows(section(page, "charges")) == [
        ["10 Jan 2024", "c1", "$100.00", "01 Mar 2026 12:30 $100.00", "$100.00", "$0.00"],
        ["10 Feb 2024", "c2", "$50.25", "01 Mar 2026 12:30 $30.00 01 Mar 2026 12:30 $10.25", "$40.25", "$10.00"],
    ]
    assert "Charges $150.25 Payments $140.25 Balance $10.00" in text_of(Tree(page.text).root)


def test_a_copayment_beyond_the_balance_leaves_credit_that_waits(fresh: World) -> None:
    """CHART-08."""
    fresh.pay(200, claim="c2")
    page = fresh.browser.get("/chart/patients/p1")
    (receipt,) = rows(section(page, "receipts"))
    assert receipt[4:] == ["Claim c1 $100.00 Claim c2 $50.25 waits for later charges $49.75", "\u2212$49.75"]
    assert "Balance \u2212$49.75 in credit" in text_of(Tree(page.text).root)


def test_a_patient_without_anything_has_a_chart_that_says_so(world: World) -> None:
    page = world.browser.get("/chart/patients/P.4-Upper")
    said = text_of(Tree(page.text).root.find(".//main"))
    for what in ("Дарья Quill-Four", "Balance $0.00", "No notes.", "No tasks.", "No payments.", "No charges."):
        assert what in said


# --- Notes ---


def test_answers_are_shown_in_the_note_of_their_encounter(world: World) -> None:
    """CHART-09, CHART-11: the permalink opens the response, first in its note."""
    encounter = {"reference": "Encounter/e5"}
    other = world.answer("p1", encounter=encounter, authored="2024-03-01")
    response_id = world.answer(
        "p1",
        [
            {"linkId": "weight", "answer": [{"valueDecimal": 70.50}]},
            {
                "linkId": "symptoms",
                "answer": [
                    {"valueCoding": {"system": "http://snomed.info/sct", "code": code, "display": display}}
                    for code, display in (("25064002", "Headache"), ("422587007", "Nausea"))
                ],
            },
        ],
        encounter=encounter,
        author={"reference": "Practitioner/dr2"},
        authored="2024-03-02T10:00:00+01:00",
    )
    note = element(world.browser.get("/chart/patients/p1"), "note-n5")
    assert text_of(note).startswith("01 Mar 2024 14:30 Encounter note")
    said = "Which symptoms? Headache Nausea Anything else? not answered Weight in kg 70.5"
    assert said in text_of(note)
    assert "intake Per Lindqvist, 02 Mar 2024 09:00" in text_of(note)
    response = world.client.get(f"/QuestionnaireResponse/{response_id}").json()
    permalink = next(e["valueString"] for e in response["extension"] if e["url"].endswith("permalink"))
    opened = element(world.browser.get(permalink), "note-n5")
    assert opened is not None
    ids = [part.get("id") for part in opened.iterfind(".//section")]
    assert ids == [f"response-{response_id}", f"response-{other}"]
    assert "target" in (opened.find(".//section").get("class") or "")  # type: ignore[union-attr]


def test_a_data_import_note_stands_on_the_timeline_at_authored(world: World) -> None:
    """CHART-10: newest first, whatever the order of recording; a date is the whole day."""
    for authored in ("2025-02-01", "2025-02-01T12:00:00Z", "2025-01-31T23:59:00-05:00", "2025-03-01"):
        world.answer("p7", authored=authored)
    notes = section(world.browser.get("/chart/patients/p7"), "notes")
    found = [text_of(heading) for heading in notes.iterfind("article/header/h3")]
    assert found == [
        "01 Mar 2025 Data import",
        "01 Feb 2025 12:00 Data import",
        "01 Feb 2025 04:59 Data import",
        "01 Feb 2025 Data import",
    ]
    assert "intake Automation user, 01 Mar 2025" in text_of(notes)


def test_a_question_is_displayed_only_when_its_conditions_hold(world: World) -> None:
    """CHART-12: packs follow a smoker's yes, the allergy an allergic's yes, the follow-up a certain allergy."""

    def given(smoker: str, allergic: str, allergy: str) -> str:
        def coding(system: str, code: str) -> list[dict[str, Any]]:
            display = {"Y": "Yes", "N": "No"}[code]
            return [{"valueCoding": {"system": system, "code": code, "display": display}}]

        packs = {"linkId": "packs", "answer": [{"valueDecimal": 2}]}
        nested = [
            {"linkId": "smoker", "answer": [coding(INTERNAL, smoker)[0] | {"item": [packs]}]},
            {"linkId": "allergic", "answer": coding(VENDOR, allergic)},
            {"linkId": "allergy", "answer": [{"valueString": allergy}]},
            {"linkId": "follow-up", "answer": [{"valueString": "Ask again"}]},
        ]
        response = world.answer("p5", [{"linkId": "history", "item": nested}])
        return text_of(element(world.browser.get(f"/chart/responses/{response}"), f"response-{response}"))

    everything = given("Y", "Y", "penicillin")
    assert "Do you smoke? Yes Packs a day 2" in everything
    assert "Which allergy? penicillin Follow-up Ask again" in everything
    assert "not displayed" not in everything
    some = given("N", "Y", "nuts")
    assert "Which allergy? nuts" in some
    assert not any(text in some for text in ("Packs a day", "Follow-up"))
    assert "2 recorded answers are not displayed" in some
    least = given("N", "N", "penicillin")
    assert "Any allergy? No" in least
    assert not any(text in least for text in ("Packs a day", "Which allergy?", "Follow-up"))
    assert "3 recorded answers are not displayed" in least


def test_a_response_entered_in_error_stays_in_its_note_struck_through_and_marked(world: World) -> None:
    """CHART-13."""
    response_id = world.answer("p5", authored="2025-06-01")
    world.client.put(
        f"/QuestionnaireResponse/{response_id}",
        json={"resourceType": "QuestionnaireResponse", "id": response_id, "status": "entered-in-error"},
    ).raise_for_status()
    for page in ("/chart/patients/p5", f"/chart/responses/{response_id}"):
        response = element(world.browser.get(page), f"response-{response_id}")
        assert "Entered in error" in text_of(response)
        assert response is not None
        assert "Anything else? Tired" in text_of(response.find("del"))


def test_a_cancelled_or_deleted_note_is_marked(world: World) -> None:
    page = world.browser.get("/chart/patients/p1")
    assert "Cancelled" in text_of(element(page, "note-n3"))
    assert "Deleted" in text_of(element(page, "note-n4"))


def test_each_section_of_a_chart_is_paged_by_itself(fresh: World) -> None:
    for day in range(1, 24):
        fresh.answer("p5", authored=f"2025-01-{day:02}")
    for _ in range(27):
        fresh.task("p5")
    page = fresh.browser.get("/chart/patients/p5?notes=2&tasks=2")
    assert len(section(page, "notes").findall("article")) == 3
    assert len(section(page, "tasks").findall("article")) == 2
    links = [link.get("href") for link in Tree(page.text).root.iterfind(".//nav[@class='pager']/a")]
    assert links == ["?tasks=2&notes=1#notes", "?notes=2&tasks=1#tasks"]
    for query in ("notes=0", "notes=-1", "tasks=x", "receipts=1e3", "charges=\u0661"):
        assert fresh.browser.get(f"/chart/patients/p5?{query}").status_code == 400


# --- Finding a patient ---


def test_patients_are_found_by_id_and_by_name_without_either_in_an_address(world: World) -> None:
    everyone = world.browser.get("/chart")
    assert rows(Tree(everyone.text).root)[0][0] == "Ada Quill-One"
    assert len(rows(Tree(everyone.text).root)) == 7
    found = world.browser.post("/chart/patients", data={"sought": " chLOÉ "})
    assert rows(Tree(found.text).root) == [["Chloé Quill-Three", "04 Mar 1992", "", "p3"]]
    opened = world.browser.post("/chart/patients", data={"sought": "P.4-Upper"})
    assert (opened.status_code, opened.headers["location"]) == (303, "/chart/patients/P.4-Upper")
    for nobody in ("nobody", "%", "_", MARKUP):
        page = world.browser.post("/chart/patients", data={"sought": nobody})
        assert "No patient matches." in page.text
        assert MARKUP not in page.text


# --- The way in and out ---


def test_every_page_needs_a_sign_in_and_the_sign_in_leads_back_to_it(world: World) -> None:
    """CHART-14."""
    stranger = world.stranger()
    task_id = world.task()
    for page in (f"/tasks/{task_id}", "/tasks", "/patients/p1", "/responses/x"):
        answer = stranger.get(f"/chart{page}")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/chart?to={page}")
        assert not answer.content
    assert stranger.get("/chart/nothing").headers["location"] == "/chart"
    assert stranger.post("/chart/patients", data={"sought": "Quill"}).headers["location"] == "/chart"
    form = stranger.get(f"/chart?to=/tasks/{task_id}")
    assert "Quill" not in form.text
    hidden = Tree(form.text).root.find(".//input[@name='to']")
    assert hidden is not None
    answer = world.sign_in(stranger, "system/Task.r", to=hidden.get("value") or "")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/chart/tasks/{task_id}")
    assert stranger.get(answer.headers["location"]).status_code == 200


def test_wrong_credentials_open_nothing(world: World) -> None:
    """CHART-14."""
    client = world.running.service.auth.add_client("Somebody")
    stranger = world.stranger()
    for form in (
        {"client_id": client["client_id"], "client_secret": "wrong"},
        {"client_id": "nobody", "client_secret": client["client_secret"]},
        {"client_id": client["client_id"]},
        {},
    ):
        answer = stranger.post("/chart", data={"to": "", **form})
        assert answer.status_code == 403
        assert "The client is unknown or its secret is wrong." in answer.text
        assert "set-cookie" not in answer.headers
    assert stranger.post("/chart", content=b"x", headers={"content-type": "text/plain"}).status_code == 400
    stranger.cookies.set(f"chart_{world.running.service.store.id[:8]}", "x" * 43)
    assert stranger.get("/chart/tasks").status_code == 303
    assert "Your session has ended." in stranger.get("/chart").text


def test_a_session_reads_and_never_writes(world: World) -> None:
    """CHART-14: whoever took the cookie could not write with it, nor read what the chart does not show."""
    browser = world.signed_in()
    (token,) = browser.cookies.values()
    bearer = {"authorization": f"Bearer {token}"}
    assert httpx.get(f"{world.running.url}/Task", headers=bearer).status_code == 200
    assert httpx.post(f"{world.running.url}/Task", headers=bearer, json={}).status_code == 403
    assert httpx.get(f"{world.running.url}/DiagnosticReport", headers=bearer).status_code == 403
    assert world.browser.put("/chart/tasks").status_code == 405
    assert world.browser.post("/chart/patients/p1").headers["allow"] == "GET"


def test_the_scopes_of_the_client_decide_what_is_seen(world: World) -> None:
    """CHART-14."""
    task_id, response_id = world.task("p1"), world.answer("p1")
    world.pay(1, claim="c1")
    reader = world.signed_in("system/Task.read")
    page = reader.get("/chart/patients/p1")
    assert element(page, f"task-{task_id}") is not None
    assert "This client may not read answers." in text_of(section(page, "notes"))
    assert "This client may not read payments." in text_of(section(page, "receipts"))
    assert not any(text in page.text for text in ("Balance", "$", response_id))
    refused = reader.get(f"/chart/responses/{response_id}")
    assert refused.status_code == 403
    assert "This client may not see this page" in refused.text
    answers = world.signed_in("system/QuestionnaireResponse.r system/Task.c")
    assert answers.get(f"/chart/responses/{response_id}").status_code == 200
    assert answers.get("/chart/tasks").status_code == 403
    assert answers.get(f"/chart/tasks/{task_id}").status_code == 403
    assert "Open tasks" not in answers.get("/chart").text


@pytest.mark.parametrize("scope", ["system/*.write", "system/DiagnosticReport.*"])
def test_a_client_that_may_read_nothing_of_the_chart_does_not_come_in(world: World, scope: str) -> None:
    """CHART-14."""
    answer = world.sign_in(world.stranger(), scope)
    assert answer.status_code == 403
    assert "This client may not read anything that the chart shows." in answer.text


def test_a_revoked_client_is_out_at_once(world: World) -> None:
    """CHART-14, AUTH-11."""
    browser = world.signed_in()
    assert browser.get("/chart/tasks").status_code == 200
    world.running.service.auth.revoke(world.client_id)
    assert browser.get("/chart/tasks").status_code == 303


def test_sign_out_ends_the_session_and_not_only_its_cookie(world: World) -> None:
    """CHART-14."""
    browser = world.signed_in()
    copied = world.stranger(cookies=browser.cookies)
    answer = browser.post("/chart/sign-out")
    assert (answer.status_code, answer.headers["location"]) == (303, "/chart")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert copied.get("/chart/tasks").status_code == 303
    assert world.browser.get("/chart/tasks").status_code == 200
    assert browser.post("/chart/sign-out").status_code == 303


def test_a_session_ends_after_half_an_hour_without_a_page_and_after_ten_hours_in_any_case(tmp_path: Path) -> None:
    """CHART-14, AUTH-10."""
    now = [FROZEN]

    def clock() -> datetime:
        return now[0]

    with running(tmp_path, clock=clock) as found, closing(World(found)) as made:
        browser = made.browser
        page = browser.get("/chart/tasks")
        cookie = page.headers["set-cookie"]
        assert "Max-Age=1800" in cookie
        now[0] += timedelta(seconds=36_001)
        assert browser.get("/chart/tasks").status_code == 303


def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(world: World) -> None:
    """CHART-14."""
    cookie = world.browser.get("/chart").headers["set-cookie"]
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert parts == {"httponly", "max-age=1800", "path=/chart", "samesite=lax"}


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
def test_forms_of_other_sites_are_refused(world: World, headers: dict[str, str]) -> None:
    """CHART-14."""
    client = world.running.service.auth.add_client("Attacker")
    credentials = {"client_id": client["client_id"], "client_secret": client["client_secret"]}
    for path in ("/chart", "/chart/sign-out", "/chart/patients"):
        answer = world.browser.post(path, data=credentials, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    own = {"sec-fetch-site": "same-origin", "origin": world.running.url}
    assert world.browser.post("/chart/patients", data={"sought": "p1"}, headers=own).status_code == 303


# --- The pages themselves ---


def test_all_text_is_text_and_never_markup(fresh: World) -> None:
    """CHART-14: scripts, templates, entities and quotes stand as they were written."""
    task_id = fresh.task(
        "p5",
        description=MARKUP,
        input=[{"type": {"text": "label"}, "valueString": MARKUP}],
        note=[{"text": MARKUP, "authorReference": {"reference": "Practitioner/dr1"}}],
    )
    response_id = fresh.answer("p5", [{"linkId": "remarks", "answer": [{"valueString": MARKUP}]}])
    for path, times in (
        ("/chart/tasks", 3),
        (f"/chart/tasks/{task_id}", 3),
        (f"/chart/responses/{response_id}", 1),
        ("/chart/patients/p5", 4),
    ):
        page = fresh.browser.get(path)
        tree = Tree(page.text).root
        assert tree.find(".//script") is None
        assert text_of(tree).count(MARKUP) == times
        assert "Reader <1>" in text_of(tree)


def pages_of(world: World) -> list[httpx.Response]:
    """One of each page."""
    world.pay(1, claim="c1")
    task_id, response_id = world.task("p1", **FULL), world.answer("p1", encounter={"reference": "Encounter/e1"})
    signed = ["", "/tasks", f"/tasks/{task_id}", f"/responses/{response_id}", "/patients/p1", "/patients", "/nothing"]
    stranger = httpx.get(f"{world.running.url}/chart")
    return [stranger, *(world.browser.get(f"/chart{path}") for path in signed)]


def test_pages_need_nothing_from_elsewhere_and_forbid_it(world: World) -> None:
    """CHART-14."""
    for page in pages_of(world):
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["x-content-type-options"] == "nosniff"
        addresses = re.findall(r'(?:href|src|action)="([^"]*)"', page.text)
        assert all(re.match(r"/chart(?:[/?]|\Z)|#|\?|data:,", address) for address in addresses)
        assert not re.search(r"<script|<style|\sstyle=|\son\w+=", page.text)
        (style,) = re.findall(r'rel="stylesheet" href="([^"]*)"', page.text)
        sheet = httpx.get(world.running.url + style)
        assert (sheet.status_code, sheet.headers["content-type"]) == (200, "text/css; charset=utf-8")
        assert not re.search(r"url\(|@import", sheet.text)


def test_pages_can_be_read_without_eyes_and_used_without_a_mouse(world: World) -> None:
    """One first heading, no level passed over, tables with headed columns and rows, fields with labels, unique ids."""
    for page in pages_of(world):
        root = Tree(page.text).root
        html = root.find("html")
        assert html is not None
        assert html.get("lang") == "en"
        levels = [int(part.tag[1]) for part in root.iter() if re.fullmatch(r"h[1-6]", part.tag)]
        assert levels.count(1) == 1
        assert levels[0] == 1
        assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
        for table in root.iter("table"):
            assert table.find("caption") is not None
            assert {part.get("scope") for part in table.iter("th")} == {"col", "row"}
        labelled = {label.get("for") for label in root.iter("label")}
        assert all(field.get("id") in labelled for field in root.iter("input") if field.get("type") != "hidden")
        ids = [part.get("id") for part in root.iter() if part.get("id")]
        assert len(ids) == len(set(ids))
        assert {part.get("aria-labelledby") for part in root.iter()} - {None} <= set(ids)
        assert root.find(".//a[@class='skip']") is not None


def test_what_is_not_there_is_a_small_page(world: World) -> None:
    for path in ("/nothing", "/tasks/none", "/responses/none", "/patients/none", "/patients/p1/x", "/"):
        page = world.browser.get(f"/chart{path}")
        assert page.status_code == 404
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "There is no such page" in page.text
        assert len(page.text) < 2000
    assert httpx.get(f"{world.running.url}/chartx").status_code == 401


def test_a_fault_is_a_page_that_shows_nothing_of_it(
    fresh: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("Ada Quill-One owes 5")

    monkeypatch.setattr("fhir_service.chart.tasks.open_ones", broken)
    page = fresh.browser.get("/chart/tasks")
    assert page.status_code == 500
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "Something went wrong" in page.text
    assert "Quill" not in page.text
    assert "ValueError" in caplog.text
    assert "Quill" not in caplog.text


def test_a_chart_behind_a_base_url_with_a_path_links_below_it(tmp_path: Path) -> None:
    """CHART-05: links and cookie lie below the base URL's path; under https the cookie is Secure."""
    service = Service.open(Settings(str(tmp_path / "store.duckdb"), base_url="https://clinic.example/fhir/"))
    load([WORLD], service.writer, service.store, service.clock, service.new_id, service.site)
    client = service.auth.add_client("Reader")
    credentials = {"client_id": client["client_id"], "client_secret": client["client_secret"], "to": "/patients/p1"}

    async def visit() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="https://clinic.example") as browser:
            form = await browser.get("/chart")
            sent = await browser.post("/chart", data=credentials, headers={"origin": "https://clinic.example"})
            cookie = {"cookie": sent.headers["set-cookie"].partition(";")[0]}
            return [form, sent, await browser.get("/chart/patients/p1", headers=cookie)]

    form, sent, page = asyncio.run(visit())
    service.close()
    assert 'action="/fhir/chart"' in form.text
    assert sent.headers["location"] == "/fhir/chart/patients/p1"
    assert "Path=/fhir/chart;" in sent.headers["set-cookie"]
    assert sent.headers["set-cookie"].endswith("Secure")
    assert page.status_code == 200
    found = re.findall(r'(?:href|action)="(/[^"]*)"', page.text)
    assert found
    assert all(address.startswith("/fhir/chart") for address in found)


def test_who_looked_at_which_chart_is_on_record(fresh: World) -> None:
    """EXTRA-OPS-04: sign-ins and pages leave records of the client, with the patients shown."""
    fresh.browser.get("/chart/patients/p1")
    fresh.browser.get("/chart/patients/p2")
    fresh.browser.get("/chart/tasks")
    lines = fresh.running.service.audit.path.read_text().splitlines()
    found = [record for line in lines if (record := json.loads(line))["client"] == fresh.client_id]
    shown = [(record["interaction"], record["type"], record.get("patients")) for record in found]
    sections = ("Task", "QuestionnaireResponse", "PaymentNotice")
    assert shown == [
        ("sign-in", "Chart", None),
        *(("read" if kind == "Patient" else "search", kind, ["p1"]) for kind in ("Patient", *sections)),
        *(("read" if kind == "Patient" else "search", kind, ["p2"]) for kind in ("Patient", *sections)),
        ("search", "Task", None),
    ]
