"""How a target's answers are read: to a write, with a created resource, and as a page."""

import time
from datetime import UTC, datetime

import pytest

from pipelines.client.replies import (
    LONGEST_SAID,
    MOST_ISSUES,
    Reply,
    UnknownOutcome,
    all_issues,
    first_issue,
    http_date,
    replies_of,
    resources_of,
    total_of,
)


@pytest.mark.parametrize(
    ("status", "outcome", "kind"),
    [
        (201, None, "created"),
        (200, None, "existed"),
        (202, None, "unknown"),
        (400, {}, "refused"),
        (422, {}, "refused"),
        (422, None, "unknown"),
        (401, None, "not done"),
        (403, None, "not done"),
        (408, {}, "unknown"),
        (409, {}, "unknown"),
        (412, {}, "refused"),
        (413, None, "not done"),
        (429, None, "not done"),
        (500, {}, "unknown"),
        (502, None, "unknown"),
        (503, {}, "not done"),
        (503, None, "unknown"),
        (504, None, "unknown"),
        (307, None, "unknown"),
        (0, None, "unknown"),
    ],
)
def test_the_status_of_an_answer_decides_if_a_write_counts_as_done_not_done_or_unknown(status, outcome, kind):
    """LEDGER-11"""
    assert Reply(status, "http://x/Task/1", outcome, not_done=(503,)).kind == kind


def test_a_status_that_proves_nothing_by_the_targets_profile_is_unknown():
    """LEDGER-11: its profile says so."""
    assert Reply(503, None, {}, not_done=()).kind == "unknown"


def test_the_outcome_of_a_batch_entry_may_be_given_as_its_resource():
    """LEDGER-11: LinuxForHealth does so."""
    words = {"resourceType": "OperationOutcome", "issue": [{"code": "multiple-matches", "details": {"text": "two"}}]}
    answer = {"type": "batch-response", "entry": [{"resource": words, "response": {"status": "412"}}]}
    [reply] = replies_of(answer, 1)
    assert reply.kind == "refused"
    assert reply.outcome == {"code": "multiple-matches", "text": "two", "diagnostics": None, "expression": None}


def test_a_success_without_a_location_is_unknown():
    assert Reply(201).kind == "unknown"


UUID = "6f1c2f0e-90a4-4d0e-8d3b-0c7d3c1a9b55"


@pytest.mark.parametrize(
    ("location", "found"),
    [
        (f"https://inner.example:8443/fhir/Task/{UUID}/_history/1", UUID),
        (f"Task/{UUID}?_format=json", UUID),
        (f"/Task/{UUID}/", UUID),
        (UUID, UUID),
        ("Task/t.1-a", "t.1-a"),
        ("/login", None),
        ("https://sso.example/login?to=/Task/1", None),
        ("Task/a b", None),
        ("Task/", None),
    ],
)
def test_a_create_whose_location_contains_no_id_is_unknown(location, found):
    """LEDGER-11: a resource under another name would look gone, and be loaded once more."""
    reply = Reply(201, location)
    assert reply.resource_id == found
    assert reply.kind == ("created" if found else "unknown")


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("Binary/1", "unknown"),
        ("http://x/fhir/Job/1?a=b", "unknown"),
        ("Task/1/_history/2", "created"),
        (UUID, "created"),
    ],
)
def test_a_location_of_another_type_names_nothing_that_was_made(location, kind):
    """LEDGER-11"""
    assert Reply(201, location).of_type("Task").kind == kind


@pytest.mark.parametrize(
    ("code", "found"),
    [("business-rule", "business-rule"), ("Patient Smith is unknown", None), (422, None), (None, None)],
)
def test_an_issue_code_with_free_text_is_dropped(code, found):
    """Codes are shown in summaries, manifests and metadata, which show no text of a target."""
    issue = first_issue({"resourceType": "OperationOutcome", "issue": [{"code": code}]})
    assert issue is not None
    assert issue["code"] == found


def test_an_entry_of_a_batch_is_refused_without_an_outcome_too():
    """LEDGER-11: R4 has the outcome of an entry as optional, and no gateway speaks within a batch-response."""
    said = [{"response": {"status": "422"}}, {"response": {"status": "400", "outcome": None}}, {"response": {}}, None]
    replies = replies_of({"type": "batch-response", "entry": said}, len(said))
    assert [reply.kind for reply in replies] == ["refused", "refused", "unknown", "unknown"]


def page(*entries):
    return {"resourceType": "Bundle", "type": "searchset", "entry": [*entries]}


def test_a_page_gives_what_was_searched_for_and_no_outcomes():
    found, said = {"resourceType": "Task", "id": "1"}, {"resourceType": "OperationOutcome"}
    assert resources_of(page({"resource": found}, {"resource": said}), "Task") == [found]
    assert resources_of({"resourceType": "Bundle"}, "Task") == resources_of(page() | {"entry": None}, "Task") == []


@pytest.mark.parametrize("entry", [{}, {"resource": None}, None, "x", {"resource": {"resourceType": "Task"}}])
def test_a_page_whose_entries_are_malformed_has_an_unknown_outcome(entry):
    with pytest.raises(UnknownOutcome):
        resources_of(page(entry), "Task")


def told(*severities):
    return {"resource": {"resourceType": "OperationOutcome", "issue": [{"severity": each} for each in severities]}}


@pytest.mark.parametrize(
    "answer",
    [{}, {"entry": []}, {"message": "maintenance"}, told("error")["resource"], page(told("warning", "fatal"))],
)
def test_an_answer_that_is_no_bundle_or_only_an_error_does_not_prove_absence(answer):
    """TARGET-03"""
    with pytest.raises(UnknownOutcome):
        resources_of(answer, "Task")


def test_a_page_that_warns_or_has_resources_beside_an_error_is_read():
    found = {"resourceType": "Task", "id": "1"}
    assert resources_of(page(told("warning", "information")), "Task") == []
    assert resources_of(page({"resource": found}, told("error")), "Task") == [found]


@pytest.mark.parametrize("total", ["3", 3.5, True])
def test_a_total_that_is_no_number_is_unknown(total):
    with pytest.raises(UnknownOutcome):
        total_of({"total": total})


def test_a_targets_own_words_are_one_line_and_not_endless():
    """LEDGER-11, REPORT-25: they are kept in the ledger, which takes no NUL; what is no sentence is left out."""
    said = {"details": {"text": "a\x00b\nc"}, "diagnostics": "x" * 5_000_000, "expression": [{"a": "b"}]}
    issue = first_issue({"resourceType": "OperationOutcome", "issue": [said]})
    assert issue == {
        "code": None,
        "text": r"a\x00b\nc",
        "diagnostics": f"{'x' * LONGEST_SAID} ...",
        "expression": None,
    }


def test_only_a_bounded_number_of_issues_is_kept():
    issues = all_issues({"resourceType": "OperationOutcome", "issue": [{"code": "invalid"}] * 10_000})
    assert len(issues) == MOST_ISSUES


@pytest.mark.parametrize("zone", ["GMT", "-0000", "+0000", "UTC"])
def test_a_date_without_a_zone_is_of_utc(monkeypatch, zone):
    """LEDGER-01: by the target's date rows are told from what was there before, wherever this machine is."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert http_date(f"Sun, 29 Nov 2026 06:05:00 {zone}") == datetime(2026, 11, 29, 6, 5, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()
