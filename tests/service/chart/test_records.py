"""The chart: what its pages show of what was recorded."""

from typing import Any

from tests.conftest import BOTH
from tests.service.chart.world import (
    COMMENT,
    FACTS,
    FULL,
    INTERNAL,
    MARKUP,
    VENDOR,
    Tree,
    World,
    element,
    rows,
    section,
    text_of,
)

STORES = BOTH


# --- Tasks ---


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


def test_a_data_import_note_is_on_the_timeline_at_authored(world: World) -> None:
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
