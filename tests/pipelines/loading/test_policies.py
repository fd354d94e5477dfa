"""The feed's policies for other content under a known key: skip, reject, update (tasks), supersede (responses)."""

from functools import partial

import pytest

from tests.support.fake_answers import Said, outcome
from tests.support.fake_target import FakeTarget
from tests.support.work import TARGET, payment, response, task, work_at

NOTE = {"text": "rang", "authorReference": {"reference": "Practitioner/a"}}
LATER = {"text": "rang again", "authorReference": {"reference": "Practitioner/a"}, "time": "2026-01-01T10:00:00Z"}


def labels(*names):
    return [{"type": {"text": "label"}, "valueString": name} for name in names]


@pytest.fixture(params=[True, False], ids=["with additions", "bare"])
def work(tmp_path, request):
    with work_at(tmp_path, FakeTarget(additions=request.param)) as work:
        yield work


def of_batch(work, batch_id):
    return {state: rows for state, (rows, _) in work.ledger.row_counts(TARGET, batch_id).items() if rows}


def test_skip_leaves_the_known_record_as_it_is(work):
    """LEDGER-08"""
    work.follow("payments", "skip")
    work.run([payment(1)])
    assert work.run([payment(1, cents=900)], "payments-2").counts == {"skipped": 1}
    assert len(work.target.stored) == work.target.writes == 1


def test_reject_is_the_default_for_tasks_and_responses(work):
    """LEDGER-09"""
    for feed, make in (("tasks", task), ("answers", response)):
        work.follow(feed)
        work.run([make(1)], f"{feed}-1")
        assert work.run([make(1, text="other")], f"{feed}-2").counts == {"rejected": 1}
    assert work.target.puts == 0


def test_update_changes_the_task_and_keeps_what_the_row_does_not_say(work):
    """LEDGER-08"""
    work.follow("tasks", "update")
    work.run([task(1, note=[NOTE], input=labels("a"))], "tasks-1")
    (stored,) = work.target.stored.values()
    stored |= {"owner": {"reference": "Practitioner/b"}, "restriction": {"period": {"end": "2026-02-01"}}}
    loaded = work.run([task(1, text="call back", note=[NOTE, LATER], input=labels("b"))], "tasks-2")
    assert loaded.counts == {"updated": 1}
    (stored,) = work.target.stored.values()
    assert (stored["description"], stored["owner"]["reference"]) == ("call back", "Practitioner/b")
    assert stored["restriction"] == {"period": {"end": "2026-02-01"}}
    assert stored["input"] == labels("a", "b")
    assert stored["note"] == [NOTE, LATER]
    assert (of_batch(work, "tasks-1"), of_batch(work, "tasks-2")) == ({"created": 1}, {"updated": 1})
    assert work.run([task(1, text="call back", note=[NOTE, LATER], input=labels("b"))], "tasks-2").counts == {
        "unchanged": 1
    }
    assert work.target.puts == 1
    assert work.target.writes == (3 if work.target.says else 1), "bundles read and write"


def test_a_task_that_is_too_large_for_an_update_is_set_aside_and_the_others_go_on(work):
    """LEDGER-08: the target takes no further comments into it, however often it is asked."""
    work.follow("tasks", "update")
    work.run([task(1), task(2)], "tasks-1")
    work.target.put_faults = ["too_large"]
    loaded = work.run([task(1, text="x", note=[NOTE]), task(2, text="y")], "tasks-2")
    assert (loaded.counts, loaded.unusable) == ({"refused": 1, "updated": 1}, None)
    assert work.target.puts == 2


@pytest.mark.parametrize("fault", ["lost_before", "lost_after", "conflict"])
def test_an_update_without_an_answer_is_settled_by_reading_and_adds_each_comment_once(work, fault):
    """LEDGER-01, LEDGER-08"""
    work.follow("tasks", "update")
    work.run([task(1)], "tasks-1")
    work.target.put_faults = [fault]
    assert work.run([task(1, text="x", note=[NOTE])], "tasks-2").counts == {"updated": 1}
    (stored,) = work.target.stored.values()
    assert (stored["description"], stored["note"]) == ("x", [NOTE])


def test_updates_go_together_where_the_target_takes_bundles(work):
    """LEDGER-08: one bundle reads the tasks, the next writes them."""
    work.follow("tasks", "update")
    numbers = range(1, 4)
    work.run([task(number) for number in numbers], "tasks-1")
    work.target.sizes.clear()
    assert work.run([task(number, text="x") for number in numbers], "tasks-2").counts == {"updated": 3}
    assert work.target.sizes == ([3, 3] if work.target.says else [])
    assert (work.target.puts, [each["description"] for each in work.target.of("Task")]) == (3, ["x"] * 3)


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", outcome("exception"), {"error": "no route"}])
def test_an_update_that_a_gateway_answers_for_the_target_is_not_taken_for_done(work, body):
    """LEDGER-08"""
    work.follow("tasks", "update")
    work.run([task(1)], "tasks-1")
    work.target.put_faults = [Said(200, body)]
    assert work.run([task(1, text="x")], "tasks-2").counts == {"updated": 1}
    (stored,) = work.target.stored.values()
    assert stored["description"] == "x"


def test_a_refused_update_leaves_the_record_as_it_was_and_is_a_reject(work):
    """LEDGER-07, LEDGER-08"""
    work.follow("tasks", "update")
    work.run([task(1)], "tasks-1")
    before = work.table("record")
    work.target.put_faults = ["refused"]
    assert work.run([task(1, text="x")], "tasks-2").counts == {"refused": 1}
    assert work.table("record") == before
    assert [row["stage"] for row in work.table("reject")] == ["load"]
    assert (of_batch(work, "tasks-1"), of_batch(work, "tasks-2")) == ({"created": 1}, {"refused": 1})
    assert work.table("former") == []
    assert work.run([task(1, text="x")], "tasks-2").counts == {"updated": 1}


def test_an_update_that_never_gets_an_answer_is_in_doubt_and_done_by_the_next_run(work):
    """LEDGER-01"""
    work.follow("tasks", "update")
    work.run([task(1)], "tasks-1")
    work.target.put_faults = ["lost_before"] * 20
    loaded = work.run([task(1, text="x")], "tasks-2")
    assert loaded.unusable
    assert loaded.counts == {"in_doubt": 1}
    work.target.put_faults = []
    assert work.run([task(1, text="x")], "tasks-2").counts == {"updated": 1}
    assert len(work.target.stored) == 1


def test_an_update_in_doubt_stays_so_while_its_task_cannot_be_read(work):
    """LEDGER-01: `planned` would mean that it was surely not sent, and an undo would give it up."""
    work.follow("tasks", "update")
    work.run([task(1)], "tasks-1")
    work.target.put_faults = ["lost_before"] * 20
    work.run([task(1, text="x")], "tasks-2")
    work.target.answers = 0
    assert work.run([task(1, text="x")], "tasks-2").counts == {"in_doubt": 1}


def test_supersede_makes_the_new_response_first_and_takes_the_old_one_back(work):
    """LEDGER-08, decision X2"""
    work.follow("answers", "supersede")
    work.run([response(1), response(2)], "answers-1")
    old = {row["key"]: row["resource_id"] for row in work.table("record")}
    assert work.run([response(1, text="no"), response(2)], "answers-2").counts == {"superseded": 1, "unchanged": 1}
    new = {row["key"]: (row["resource_id"], row["generation"], row["state"]) for row in work.table("record")}
    assert new["k1"][1:] == (2, "superseded")
    assert work.target.stored[old["k1"]]["status"] == "entered-in-error"
    assert work.target.stored[new["k1"][0]]["status"] == "completed"
    if work.target.additions:
        assert work.target.stored[new["k1"][0]]["identifier"]["value"] == "k1~2"
    assert [(row["resource_id"], row["fate"]) for row in work.table("former")] == [(old["k1"], "withdrawn")]
    assert of_batch(work, "answers-1") == {"created": 2}
    assert work.run([response(1, text="no"), response(2)], "answers-2").counts == {"unchanged": 2}
    assert work.run([response(1, text="maybe")], "answers-3").counts == {"superseded": 1}
    assert [body["status"] for body in work.target.stored.values()].count("completed") == 2


def test_a_refused_superseding_response_leaves_the_old_one_standing(work):
    """LEDGER-07, LEDGER-08"""
    work.follow("answers", "supersede")
    work.run([response(1)], "answers-1")
    before = work.table("record")
    work.target.refuse = lambda body: True
    assert work.run([response(1, text="no")], "answers-2").counts == {"refused": 1}
    assert work.table("record") == before
    assert [body["status"] for body in work.target.stored.values()] == ["completed"]
    work.target.refuse = lambda body: False
    assert work.run([response(1, text="no")], "answers-2").counts == {"superseded": 1}


def test_a_superseded_response_that_a_killed_run_left_is_taken_back_by_the_next_run(work, monkeypatch):
    """LEDGER-01: killed between the new response and the withdrawal of the old one."""

    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    work.follow("answers", "supersede")
    work.run([response(1)], "answers-1")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.loading.stage.take_back_superseded", killed)
        with pytest.raises(Killed):
            work.run([response(1, text="no")], "answers-2")
    work.target.faults = ["busy"] * 20
    assert work.run([response(2)], "answers-3").unusable, "nothing more is asked of it"
    assert [body["status"] for body in work.target.stored.values()] == ["completed", "completed"]
    work.target.faults = []
    work.run([response(1, text="no")], "answers-2")
    assert [body["status"] for body in work.target.stored.values()] == ["entered-in-error", "completed"]


def test_a_superseding_response_without_an_answer_is_settled_like_any_other(work):
    """LEDGER-01"""
    work.follow("answers", "supersede")
    work.run([response(1)], "answers-1")
    work.target.faults = ["lost_after"]
    assert work.run([response(1, text="no")], "answers-2").counts == {"superseded": 1}
    assert [body["status"] for body in work.target.stored.values()] == ["entered-in-error", "completed"]


@pytest.mark.parametrize(("feed", "changed", "make"), [("tasks", "update", task), ("answers", "supersede", response)])
def test_an_older_file_that_comes_again_does_not_undo_newer_changes(work, feed, changed, make):
    """LEDGER-08: importing the whole inbox again, in any order, writes nothing."""
    work.follow(feed, changed)
    files = {"one": make(1, text="a"), "same": make(1, text="a"), "two": make(1, text="b"), "three": make(1, text="c")}
    for name, row in files.items():
        work.run([row], name)
    before = work.table("record"), work.target.writes, work.target.puts
    for name in ("three", "one", "two", "same", "three"):
        assert work.run([files[name]], name, resuming=False).counts == {
            "unchanged" if name == "three" else "skipped": 1
        }
    assert (work.table("record"), work.target.writes, work.target.puts) == before
    assert work.run([make(1, text="a")], "four").counts == {f"{changed}d": 1}


@pytest.mark.parametrize(("feed", "changed", "make"), [("tasks", "update", task), ("answers", "supersede", response)])
def test_an_older_refused_row_that_comes_again_does_not_undo_a_newer_one(work, feed, changed, make):
    """LEDGER-19: its reject was closed by the newer record."""
    work.follow(feed, changed)
    work.target.refuse = lambda body: "old" in str(body)
    assert work.run([make(1, text="old")], "one").counts == {"refused": 1}
    assert work.run([make(1, text="new")], "two").counts == {"created": 1}
    work.target.refuse = lambda body: False
    assert work.run([make(1, text="old")], "one", resuming=False).counts == {"skipped": 1}


def test_rows_that_changed_only_because_the_feed_did_wait_for_remap(work):
    """CLI-CMD-18"""
    work.follow("tasks", "update")
    work.run([task(1)])
    work.feed = work.feed.__class__(**{**vars(work.feed), "hash": "another"})
    assert work.run([task(1, text="x")], resuming=False).counts == {"unchanged": 1}
    assert work.run([task(1, text="x")], resuming=False, remap=True).counts == {"updated": 1}
    assert of_batch(work, "payments-1") == {"created": 1}


def test_an_older_file_does_not_undo_a_newer_one_although_both_were_skipped_at_first(work):
    """LEDGER-08: the policy was `skip` when they came."""
    work.follow("tasks", "skip")
    for number in (1, 2, 3):
        work.run([task(1, text=f"v{number}")], f"tasks-{number}")
    work.follow("tasks", "update")
    again = partial(lambda number: work.run([task(1, text=f"v{number}")], f"tasks-{number}", resuming=False).counts)
    assert [again(number) for number in (2, 3, 2, 1)] == [
        {"updated": 1},
        {"updated": 1},
        {"skipped": 1},
        {"skipped": 1},
    ]
    [stored] = work.target.stored.values()
    assert stored["description"] == "v3"


def test_an_older_file_under_a_renamed_feed_does_not_undo_newer_changes(work):
    """LEDGER-08: it is another batch of the same bytes."""
    work.follow("tasks", "update")
    for name, text in (("tasks-1", "old"), ("tasks-2", "new"), ("work-1", "old")):
        about = {"source": "default", "resource_type": "Task", "file_sha256": f"sha of {name[-1]}"}
        work.ledger.start_batch(TARGET, name, feed=name[:-2], **about)
        work.ledger.finish_batch(TARGET, name, "finished")
        loaded = work.run([task(1, text=text)], name)
    assert loaded.counts == {"skipped": 1}
    [stored] = work.target.stored.values()
    assert stored["description"] == "new"
