"""Every requirement of the interface has a case or a test that names it, or is in uncovered.csv with the reason."""

import csv
import re
from functools import cache
from pathlib import Path

from tests.spec.casebook import SPEC, cases, requirements, scenarios

AREAS = {
    *("common", "task", "payment_notice", "questionnaire", "questionnaire_response", "diagnostic_report"),
    *("search", "bundle", "auth", "errors", "limits", "extra"),
}
OWN_LISTS = {SPEC / "interface.csv", SPEC / "uncovered.csv"}
ID = re.compile(r"[A-Z]+(?:-[A-Z0-9]+)+")

# Requirements about what is accepted, by which nothing can be refused: a passing case is all there can be.
ONLY_PASSING = {
    *("TASK-13", "TASK-15", "TASK-32", "TASK-CREATE-01", "PAY-CREATE-07", "PAY-27", "QR-24", "LIMIT-01"),
    *("QR-RULE-02", "QR-RULE-03", "TASK-UPDATE-14", "PAY-31", "QR-ITEM-18"),
}


@cache
def named() -> set[str]:
    """The ids that the files under tests/ name."""
    files = [path for path in SPEC.parent.rglob("*") if path.suffix in {".py", ".yaml"} and path != Path(__file__)]
    return {found for path in files for found in ID.findall(path.read_text(encoding="utf-8"))}


def uncovered() -> dict[str, str]:
    """The requirements that are known to have neither case nor test, with the reason."""
    with (SPEC / "uncovered.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row["reason"] for row in csv.DictReader(file)}


def of_areas() -> set[str]:
    return {id for id, row in requirements().items() if row["area"] in AREAS}


def everything() -> list[tuple[str, tuple[str, ...]]]:
    """Each case and scenario: its id, and what it proves."""
    return [(case.id, case.proves) for case in cases()] + [(found.id, found.proves) for found in scenarios()]


def test_exactly_the_uncovered_requirements_are_listed_with_a_reason() -> None:
    listed = uncovered()
    missing = of_areas() - named()
    unlisted, covered = sorted(missing - set(listed)), sorted(set(listed) - missing)
    assert not unlisted, f"neither a case nor a test names: {', '.join(unlisted)}"
    assert not covered, f"covered by now (or unknown), take out of uncovered.csv: {', '.join(covered)}"
    assert all(reason.strip() for reason in listed.values())


def test_cases_name_requirements_that_exist() -> None:
    for id, proves in everything():
        assert set(proves) <= set(requirements()), id
        assert proves, id


def test_ids_of_cases_occur_once() -> None:
    ids = [id for id, _ in everything()]
    assert len(ids) == len(set(ids))


def test_requirements_checked_by_case_have_a_passing_and_a_failing_case() -> None:
    passing = {id for case in cases() if case.expected.outcome is None for id in case.proves}
    failing = {id for case in cases() if case.expected.outcome for id in case.proves}
    wanted = {id for id in of_areas() if requirements()[id]["checked_by"] == "case"}
    assert sorted(wanted - passing) == []
    assert sorted(wanted - failing - ONLY_PASSING) == []


def test_a_failing_case_has_the_outcome_of_a_requirement_it_proves() -> None:
    for case in cases():
        rows = [requirements()[id] for id in case.proves]
        statuses = {int(row["status_code"]) for row in rows if row["status_code"]}
        if case.expected.outcome and any(status >= 400 for status in statuses):
            assert case.expected.row["status"] in statuses, case.id


def test_requirements_have_one_row_each() -> None:
    with (SPEC / "interface.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(requirements())
    assert all(row["requirement"] and row["source"] and row["kind"] in {"given", "decided", "added"} for row in rows)
