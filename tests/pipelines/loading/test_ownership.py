"""A resource that has a record's id and is not the record's is never changed: a target may give its ids again."""

import re
from pathlib import Path

import pytest

import pipelines
from pipelines.loading.policies import LEFT
from tests.support.fake_target import FakeTarget, serving
from tests.support.work import Work, response, task

SAYS = ["transaction", "conditional", "identifier"]
KINDS = [("tasks", "update", task), ("answers", "supersede", response)]
WRITES = re.compile(r"client\.(?:update|exchange)\(")


@pytest.fixture(params=[SAYS, ()], ids=["another make", "bare"])
def work(tmp_path, request):
    with serving(FakeTarget(additions=False, says=request.param)) as target:
        target.known_parameters = {"_id", "identifier"}
        work = Work(tmp_path, target)
        yield work
        work.close()


def resource_of(work, key="k1"):
    (record,) = (row for row in work.table("record") if row["key"] == key)
    return work.target.stored[record["resource_id"]]


def give_to_another(body):
    """The id of a resource is another's from now on, of another patient, as after a restore."""
    name = "for" if body["resourceType"] == "Task" else "subject"
    body |= {name: {"reference": "Patient/p9"}, "identifier": [], "status": "requested"}
    return dict(body)


def moved(work, body):
    """The same resource under another id."""
    work.target.stored["moved"] = {**body, "id": "moved"}
    return work.target.stored["moved"]


@pytest.mark.parametrize(("feed", "changed", "make"), KINDS, ids=["task", "response"])
def test_a_resource_with_a_records_id_that_belongs_to_another_record_is_not_changed(work, feed, changed, make):
    """LEDGER-08"""
    work.follow(feed, changed)
    work.run([make(1)], "one")
    others = give_to_another(resource_of(work))
    loaded = work.run([make(1, text="new")], "two")
    assert work.target.stored[others["id"]] == others
    assert work.target.puts == 0
    assert loaded.counts == ({"refused": 1} if changed == "update" else {"superseded": 1})
    assert dict(loaded.reasons) == ({"NOT-OURS": 1} if changed == "update" else {})
    work.run([make(1, text="newer")], "three")
    assert work.target.stored[others["id"]] == others


@pytest.mark.parametrize("work", [SAYS], indirect=True, ids=["another make"])
def test_a_superseded_response_that_moved_is_taken_back_where_it_is(work):
    """LEDGER-08: else both would stand."""
    work.follow("answers", "supersede")
    work.run([response(1)], "one")
    old = moved(work, resource_of(work))
    others = give_to_another(resource_of(work))
    work.target.refused_parameters = {"identifier"}
    loaded = work.run([response(1, text="no")], "two")
    assert (old["status"], fate(work), loaded.is_cut_short) == ("completed", "standing", True)
    work.target.refused_parameters = set()
    work.run([response(1, text="no")], "two", resuming=False)
    assert work.target.stored["moved"]["status"] == "entered-in-error"
    assert work.target.stored[others["id"]] == others
    assert [row["fate"] for row in work.table("former")] == ["withdrawn"]


def fate(work):
    (former,) = work.table("former")
    return former["fate"]


@pytest.mark.parametrize("work", [SAYS], indirect=True, ids=["another make"])
def test_a_superseded_response_without_an_identifier_stays_in_force_until_it_has_one(work):
    """LEDGER-08: it was sent without one, or somebody removed it. The load says so."""
    work.follow("answers", "supersede")
    work.run([response(1)], "one")
    old = resource_of(work)
    identifier, old["identifier"] = old["identifier"], []
    work.run([response(1, text="no")], "two")
    assert (old["status"], fate(work)) == ("completed", "standing")
    assert work.progress.lines == [f"1 {LEFT}"]
    old["identifier"] = identifier
    work.run([response(1, text="no")], "two", resuming=False)
    assert (work.target.stored[old["id"]]["status"], fate(work)) == ("entered-in-error", "withdrawn")
    assert work.progress.lines == [f"1 {LEFT}"]


@pytest.mark.parametrize(
    ("work", "again"),
    [(SAYS, False), (SAYS, True), ((), False)],
    indirect=["work"],
    ids=["deleted", "id given again", "deleted, bare"],
)
def test_a_superseded_response_that_is_not_there_is_gone(work, again):
    """LEDGER-08: nothing is said, and no later load looks for it."""
    work.follow("answers", "supersede")
    work.target.refused_parameters = set() if work.target.says else {"identifier"}
    work.run([response(1), response(2)], "one")
    old, other = resource_of(work), resource_of(work, "k2")
    if again:
        old["identifier"] = other["identifier"]
    else:
        del work.target.stored[old["id"]]
    work.run([response(1, text="no")], "two")
    assert (old["status"], fate(work), work.progress.lines) == ("completed", "gone", [])


@pytest.mark.parametrize("work", [SAYS], indirect=True, ids=["another make"])
@pytest.mark.parametrize("case", ["several", "refused there", "refused where it was", "found by searches alone"])
def test_superseded_responses_that_cannot_be_taken_back_are_counted_in_one_sentence(work, case):
    """LEDGER-08"""
    work.follow("answers", "supersede")
    work.run([response(1), response(2)], "one")
    for key in ("k1", "k2"):
        old = resource_of(work, key)
        if case in ("several", "refused there"):
            del work.target.stored[old["id"]]
            names = [f"{key}-{at}" for at in range(2 if case == "several" else 1)]
            work.target.stored |= {name: {**old, "id": name} for name in names}
    work.target.put_faults = ["refused"] * 2
    if case == "found by searches alone":
        work.target.shown = lambda _: None
    before = {name: dict(body) for name, body in work.target.stored.items()}
    work.run([response(1, text="no"), response(2, text="no")], "two")
    assert {name: work.target.stored[name] for name in before} == before
    assert [row["fate"] for row in work.table("former")] == ["standing"] * 2
    assert work.progress.lines == [f"2 {LEFT}"]


def test_a_task_whose_patient_an_update_changes_is_recognised_with_the_old_and_the_new_patient(work):
    """LEDGER-08: also if the answer to its update was lost."""
    work.follow("tasks", "update")
    work.run([task(1)], "one")
    work.target.put_faults = ["lost_after"]
    assert work.run([task(1, "p2", text="a")], "two").counts == {"updated": 1}
    work.target.put_faults = ["lost_before"] * 20
    work.run([task(1, "p3", text="b")], "three")
    work.target.put_faults = []
    assert work.run([task(1, "p3", text="b")], "three").counts == {"updated": 1}
    assert resource_of(work)["for"] == {"reference": "Patient/p3"}


def test_requests_that_change_a_resource_are_built_in_one_place():
    """LEDGER-08: reference data alone is put too, where a read has found nothing."""
    root = Path(pipelines.__file__).parent
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if WRITES.search(path.read_text())}
    assert found == {"loading/changes.py", "importing/reference.py"}
    text = "".join(path.read_text() for path in root.rglob("*.py"))
    assert set(re.findall(r'"(PUT|PATCH|DELETE)"', text)) == {"PUT"}


@pytest.mark.parametrize("work", [SAYS], indirect=True, ids=["another make"])
@pytest.mark.parametrize(("feed", "changed", "make"), KINDS, ids=["task", "response"])
def test_where_an_update_replaces_the_resource_all_that_others_added_stays(work, feed, changed, make):
    """LEDGER-08: as FHIR has it; the interface keeps what an update does not name."""
    work.follow(feed, changed)
    work.run([make(1)], "one")
    stored = resource_of(work)
    stored |= {"meta": {"tag": [{"code": "seen"}]}, "note": [{"text": "rang"}], "priority": "urgent"}
    stored |= {"extension": [{"url": "http://x/other", "valueCode": "a"}], "input": [{"valueCode": "a"}]}
    before = dict(stored)
    work.run([make(1, text="new")], "two")
    changes = {"description": "new"} if changed == "update" else {"status": "entered-in-error"}
    assert work.target.stored[before["id"]] == before | changes
