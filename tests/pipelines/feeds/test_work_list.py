"""Values without an entry in a crosswalk: listed with candidates, filled in, and closed by the next import."""

import csv
import json

import pytest

from pipelines.corrections import sources
from pipelines.corrections.worklist import Candidate, Candidates
from tests.support.giving_back import Practice

FEED = """
kind = "payments"
files = ["till*.csv"]
[columns]
payment_id = "id"
patient_id = { column = "mrn", crosswalk = { file = "people.csv", from = "mrn", to = "id", where = { kind = "P" } } }
amount = "amount"
paid_on = "day"
"""
PEOPLE = [("p1", "MRN100111", "Ana", "Diaz", "1961-01-02"), ("p2", "MRN200", "Bo", "Li", "1999-05-05")]


def person(name, number, given, family, born):
    names = [{"family": family, "given": [given]}]
    return {"resourceType": "Patient", "id": name, "identifier": [{"value": number}], "name": names, "birthDate": born}


@pytest.fixture
def practice(home, target, chartferry):
    practice = Practice(home, target, chartferry)
    (home / "feeds").mkdir()
    (home / "feeds" / "till.toml").write_text(FEED)
    (home / "feeds" / "people.csv").write_text("kind;mrn;id\n".replace(";", ",") + "P,MRN7,p1")
    (home / "reference").mkdir()
    lines = "".join(json.dumps(person(*each)) + "\n" for each in PEOPLE)
    (home / "reference" / "patients.ndjson").write_text(lines + "no json\n[1]\n")
    rows = ["a,MRN7", "b,MRN10011", "c,MRN10011", 'd,"Li Bo\n1999"']
    code, _ = practice.take("id,mrn,amount,day\n" + "".join(f"{row},1.00,2026-03-01\n" for row in rows), "till.csv")
    assert code == 3
    return practice


def test_values_are_listed_with_how_often_they_came_and_the_nearest_people(practice, chartferry):
    """FEED-FILE-06"""
    code, out, _ = chartferry("feeds", "map", "till")
    assert code == 0
    assert out.splitlines() == [
        "people.csv: MRN10011: 2 rows",
        "  1  p1  MRN100111 Ana Diaz 1961-01-02",
        "  2  p2  MRN200 Bo Li 1999-05-05",
        "people.csv: Li Bo\\n1999: 1 row",
        "  1  p2  MRN200 Bo Li 1999-05-05",
    ]


def test_a_list_without_candidates_says_where_they_were_looked_for(practice, chartferry):
    """FEED-FILE-06"""
    (practice.home / "reference" / "patients.ndjson").unlink()
    code, out, said = chartferry("feeds", "map", "till")
    assert (code, len(out.splitlines())) == (0, 2)
    assert said.startswith(f"no candidates: {practice.home / 'reference'} has no records of this type; name other")


def test_a_list_filled_in_by_a_colleague_closes_the_rejects_with_the_next_import(practice, chartferry):
    """FEED-FILE-06, CLI-CMD-05: entries are written behind those that are there."""
    work = practice.home / "work.csv"
    assert chartferry("feeds", "map", "till", "--out", work)[0] == 0
    assert work.stat().st_mode & 0o077 == 0
    with work.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["crosswalk", "value", "rows", "entry", "candidates"]
    rows[1][3], rows[2][3] = "Patient/p1", "p2"
    with work.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    code, out, _ = chartferry("feeds", "map", "till", "--entries", work)
    assert (code, out) == (0, "2 entries were written; chartferry import tries the rejects again\n")
    people = (practice.home / "feeds" / "people.csv").read_text()
    assert people == 'kind,mrn,id\nP,MRN7,p1\nP,MRN10011,Patient/p1\nP,"Li Bo\n1999",p2\n'
    said = "no entry was written: the crosswalks have all of these entries already\n"
    assert chartferry("feeds", "map", "till", "--entries", work)[:2] == (0, said)
    assert chartferry("import")[0] == 0
    assert [key[-1] for key in practice.created()] == ["a", "b", "c", "d"]
    assert {state for state, _ in practice.rejects().values()} == {"closed"}
    said = (
        "nothing to list: no open reject of till lacks a crosswalk entry; a value is listed after an import has"
        " rejected it\n"
    )
    assert chartferry("feeds", "map", "till", "--out", practice.home / "none.csv")[1] == said
    assert not (practice.home / "none.csv").exists()


def test_a_value_is_listed_for_the_open_rejects_of_its_own_file(practice, chartferry):
    """FEED-FILE-06: not since a reject of another file has rows on these lines."""
    columns = {
        "payment_id": "response_id",
        "amount = ": "question = ",
        "paid_on": "questionnaire",
        '"payments"': '"answers"',
    }
    text = FEED.replace("till*", "form*")
    for old, new in columns.items():
        text = text.replace(old, new)
    (practice.home / "feeds" / "form.toml").write_text(text)
    for name, people in (("form_1.csv", "OLD NEW NEW"), ("form_2.csv", "MRN7 LAST LAST")):
        rows = "".join(f"{name}{who},{who},{at},f\n" for at, who in enumerate(people.split()))
        practice.take(f"id,mrn,amount,day\n{rows}", name)
    new = next(name for key, name in practice.ids().items() if key.endswith("NEW"))
    assert chartferry("rejects", "discard", new, "--why", "left")[0] == 0
    assert chartferry("feeds", "map", "form")[1].splitlines() == ["people.csv: LAST: 2 rows", "people.csv: OLD: 1 row"]


def test_an_import_tries_them_once_for_each_feed_file(practice, chartferry):
    """Nothing is tried again while nothing has changed. A run that the target stopped has not tried them."""
    assert "nothing to import" in chartferry("import")[1]
    (practice.home / "feeds" / "people.csv").write_text("kind,mrn,id\nP,MRN7,p1\nP,MRN10011,p1\n")
    practice.target.faults = ["forbidden"] * 30
    code, out, _ = chartferry("import")
    assert (code, "2 rows wait for chartferry rejects retry" in out) == (6, True), out
    practice.target.faults = []
    assert chartferry("import")[0] == 3
    assert [key[-1] for key in practice.created()] == ["a", "b", "c"]
    assert "nothing to import" in chartferry("import")[1]


def test_on_a_terminal_each_value_is_asked_for(practice, monkeypatch, chartferry):
    answers = iter(["1", ""])
    monkeypatch.setattr("click.prompt", lambda *_, **__: next(answers))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    code, out, _ = chartferry("feeds", "map", "till")
    assert (code, out.splitlines()[-1]) == (0, "1 entry was written; chartferry import tries the rejects again")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("people.csv,MRN10011,2,p9,", "crosswalk people.csv: p9 is not an id of the reference data"),
        ("people.csv,MRN10011,2,7.0,", "crosswalk people.csv: 7.0 is not an id of the reference data"),
        ("other.csv,x,2,p1,", "crosswalk other.csv: the feed till has no crosswalk file of this name"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_and_nothing_is_written(row, said, practice, chartferry):
    work = practice.home / "work.csv"
    work.write_text(f"crosswalk,value,rows,entry,candidates\n{row}\n")
    assert chartferry("feeds", "map", "till", "--entries", work) == (4, "", f"chartferry: {said}\n")
    assert (practice.home / "feeds" / "people.csv").read_text().endswith("P,MRN7,p1")


def test_a_file_that_is_no_work_list_and_a_feed_that_is_not_there_are_reported_in_one_line(
    practice, chartferry, tmp_path
):
    (tmp_path / "w.csv").write_text("a,b\n1,2\n")
    said = (
        "chartferry: w.csv: this is no work list: it lacks the columns crosswalk, value, rows, entry; save it as"
        " CSV UTF-8\n"
    )
    assert chartferry("feeds", "map", "till", "--entries", tmp_path / "w.csv") == (4, "", said)
    assert chartferry("feeds", "map", "nope") == (4, "", "chartferry: nope: there is no feed of this name\n")


def test_candidates_of_many_people_come_by_what_few_others_have():
    people = [Candidate(f"p{n}", f"MRN{n:06} Ana Diaz 19{n % 90 + 10}-01-01") for n in range(5_000)]
    near = Candidates([*people, Candidate("rare", "Zoe Quist")]).near("quist")
    assert [each.id for each in near] == ["rare"]
    assert sources.NO_ENTRY == "FEED-FILE-06"
