"""`notes = "patient-day"`: a patient's responses of one local day are in one note, at both kinds of target."""

import json
import uuid
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pipelines.cli import run
from pipelines.client.replies import TargetUnusable
from pipelines.ledger.ledger import Ledger
from pipelines.loading.row import AcceptedRow
from pipelines.loading.shared_notes import SharedNotes, in_note
from tests.conftest import running, small_world
from tests.support import commands
from tests.support.exports import feed_file
from tests.support.fake_answers import Said
from tests.support.fake_target import FakeTarget, serving
from tests.support.ledgers import lose_ledger
from tests.support.publishing import publish_nothing
from tests.support.work import QUESTIONNAIRE, Work

NOTE_ID = "http://schemas.example.com/fhir/extensions/note-id"
DAY, NIGHT, NEXT = "2026-03-01T15:00:00+00:00", "2026-03-02T04:00:00+00:00", "2026-03-02T15:00:00+00:00"
"""In New York the first two are of one day, the third of the next."""


class WithNotes(FakeTarget):
    """A target that keeps notes: a response without one gets a new one, each shows its own."""

    def create(self, body, condition=None):
        if body["resourceType"] == "QuestionnaireResponse" and "extension" not in body:
            body = body | {"extension": [{"url": NOTE_ID, "valueId": f"note-{uuid.uuid4()}"}]}
        return super().create(body, condition)


def response(number, patient="p1", authored=DAY, key=None, text="yes", **more):
    answer = {"linkId": "1", "answer": [{"valueString": text}]}
    body: dict[str, Any] = {"resourceType": "QuestionnaireResponse", "status": "completed"}
    body |= {"questionnaire": QUESTIONNAIRE, "subject": {"reference": f"Patient/{patient}"}, "item": [answer]}
    body |= ({"authored": authored} if authored else {}) | more
    text = json.dumps(body, separators=(",", ":"))
    at = datetime.fromisoformat(authored) if authored else None
    lane = more["encounter"]["reference"] if "encounter" in more else patient
    return (
        number + 1,
        1,
        key or f"k{number}",
        lane,
        number,
        f"hash {text}",
        patient,
        at and at.replace(tzinfo=UTC),
        None,
        text,
    )


@pytest.fixture(params=[True, False], ids=["with additions", "bare"])
def work(tmp_path, request):
    with serving(WithNotes(additions=request.param)) as target:
        work = Work(tmp_path, target)
        share(work)
        yield work
        work.close()


def test_a_response_that_another_home_has_sent_needs_no_note(tmp_path, monkeypatch):
    """LEDGER-15: at a target where rows are asked for before they are sent. It is in its note there."""
    with serving(WithNotes(says=["identifier"])) as target:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            with closing(Work(tmp_path / name, target)) as home:
                share(home)
                outcome = home.run([response(0), response(1)]).counts
                monkeypatch.setattr(SharedNotes, "find", unread)
                assert outcome == ({"created": 2} if name == "one" else {"adopted": 2})


def unread(*_):
    raise TargetUnusable("a response whose note is shared cannot be read")


def share(work, changed="reject", notes="patient-day"):
    work.follow("answers", changed)
    said = {"notes": notes, "timezone": "America/New_York"}
    work.feed = replace(work.feed, file=work.feed.file.model_copy(update=said))


def notes(work):
    return in_notes(work.target.stored.values())


def in_notes(responses):
    """Return by patient how many responses each note holds."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for body in responses:
        if body["status"] == "completed":
            found[body["subject"]["reference"][8:]][note_of(body)] += 1
    return {patient: sorted(each.values(), reverse=True) for patient, each in found.items()}


def bodies(work):
    """By key, what the target has."""
    return {row["key"]: work.target.stored[row["resource_id"]] for row in work.table("record") if row["resource_id"]}


def note_of(body):
    return next(each["valueId"] for each in body["extension"] if each["url"] == NOTE_ID)


def test_responses_of_a_patient_and_local_day_share_a_note(work):
    times = (DAY, NIGHT, NEXT, DAY)
    rows = [response(n, f"p{n % 2}", times[n // 2 % 4]) for n in range(24)]
    assert work.run(rows).counts == {"created": 24}
    assert notes(work) == {"p0": [9, 3], "p1": [9, 3]}
    work.agree()
    assert work.run(rows).counts == {"unchanged": 24}


def test_without_the_policy_each_response_has_a_note_of_its_own(work):
    share(work, notes="response")
    assert work.run([response(n) for n in range(4)]).counts == {"created": 4}
    assert notes(work) == {"p1": [1, 1, 1, 1]}
    assert work.table("shared_note") == []
    assert work.target.reads == (0 if work.target.additions else 1)


def test_a_response_that_names_an_encounter_or_a_note_neither_makes_nor_joins_one(work):
    own = [{"url": NOTE_ID, "valueId": "note-of-its-own"}]
    visit = {"reference": "Encounter/e1"}
    rows = [response(1, extension=own), response(2, encounter=visit), response(3), response(4)]
    assert work.run(rows).counts == {"created": 4}
    there = bodies(work)
    assert note_of(there["k1"]) == "note-of-its-own"
    assert note_of(there["k3"]) == note_of(there["k4"]) != note_of(there["k2"])
    assert {row["key"] for row in work.table("shared_note")} == {"k3", "k4"}


def test_a_date_is_that_day_everywhere_and_no_time_at_all_is_the_day_of_the_first_attempt(work):
    rows = [response(1, authored="2026-03-01"), response(2, authored=DAY), response(3, authored=NEXT)]
    rows += [response(4, authored=None), response(5, authored=None)]
    assert work.run(rows).counts == {"created": 5}
    assert notes(work) == {"p1": [2, 2, 1]}
    days = {row["key"]: row["day"] for row in work.table("shared_note")}
    assert (days["k1"], days["k2"], days["k3"]) == ("2026-03-01", "2026-03-01", "2026-03-02")


def test_the_second_file_of_a_day_goes_into_the_note_of_the_first(work):
    work.run([response(1), response(2, "p2")], "answers-1")
    assert work.run([response(3), response(4), response(5, "p3")], "answers-2").counts == {"created": 3}
    assert notes(work) == {"p1": [3], "p2": [1], "p3": [1]}


def test_a_refused_first_response_leaves_the_note_to_the_next(work):
    """LEDGER-07"""
    work.target.refuse = lambda body: body["item"][0]["answer"][0]["valueString"] == "no"
    rows = [response(1, text="no"), response(2, text="no"), response(3), response(4)]
    assert work.run(rows).counts == {"created": 2, "refused": 2}
    assert notes(work) == {"p1": [2]}
    work.target.refuse = lambda body: False
    assert work.run(rows).counts == {"created": 2, "unchanged": 2}
    assert notes(work) == {"p1": [4]}


def test_responses_for_a_note_that_was_cancelled_meanwhile_are_rejects(work):
    """LEDGER-07: as any row that the target refuses."""
    work.run([response(1)], "answers-1")
    cancelled = note_of(bodies(work)["k1"])
    work.target.refuse = lambda body: any(each["valueId"] == cancelled for each in body.get("extension", ()))
    assert work.run([response(2)], "answers-2").counts == {"refused": 1}
    assert [(row["source_key"], row["stage"]) for row in work.table("reject")] == [("k2", "load")]


def test_a_response_that_was_taken_back_counts_for_nothing(work):
    work.run([response(1), response(2, "p2"), response(3, "p2")], "answers-1")
    there = bodies(work)
    there["k1"]["status"] = there["k2"]["status"] = "entered-in-error"
    assert work.run([response(4), response(5, "p2")], "answers-2").counts == {"created": 2}
    there = bodies(work)
    assert note_of(there["k4"]) != note_of(there["k1"])
    assert note_of(there["k5"]) == note_of(there["k3"])


def test_a_superseding_response_stays_in_the_note_of_the_former_one(work):
    """LEDGER-08"""
    share(work, "supersede")
    work.run([response(1)], "answers-1")
    before = note_of(bodies(work)["k1"])
    assert work.run([response(1, text="no"), response(2)], "answers-2").counts == {"superseded": 1, "created": 1}
    assert notes(work) == {"p1": [2]}
    assert {note_of(body) for body in bodies(work).values()} == {before}


class Killed(BaseException):
    pass


@pytest.mark.alike
@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_end_between_the_first_and_the_others_leaves_one_note(work, monkeypatch, after):
    """LEDGER-01: the importer ends after some writes, before the ledger knows of them."""
    rows = [response(1), response(2), response(3), response(4, "p2")]

    def settle(*_):
        raise Killed

    done = work.target.create

    def create(body, condition=None):
        found = done(body, condition)
        if len(work.target.stored) == after:
            monkeypatch.setattr(Ledger, "settle", settle)
        return found

    work.target.create = create
    with pytest.raises(Killed):
        work.run(rows)
    monkeypatch.undo()
    work.target.create = done
    work.run(rows, settling=0)
    assert work.run(rows, settling=0).counts == {"unchanged": 4}
    assert notes(work) == {"p1": [3], "p2": [1]}
    assert len(work.target.stored) == 4


def test_while_the_first_is_in_doubt_nothing_goes_into_another_note(work):
    """LEDGER-05: neither in its file nor in the next one."""
    work.target.faults = ["lost_before"] * 30
    first = work.run([response(1), response(2)], "answers-1")
    assert first.counts["in_doubt"] >= 1
    work.target.faults = []
    second = work.run([response(3)], "answers-2")
    assert "created" not in second.counts
    work.run([response(1), response(2)], "answers-1", settling=0)
    assert work.run([response(3)], "answers-2").counts == {"created": 1}
    assert notes(work) == {"p1": [3]}


def test_a_response_without_an_outcome_holds_back_the_others_that_share_its_note(tmp_path):
    """LEDGER-05"""
    with serving(WithNotes()) as target, closing(Work(tmp_path, target)) as work:
        share(work)
        entry = {"response": {"status": "500"}}
        unclear = Said(200, {"resourceType": "Bundle", "type": "batch-response", "entry": [entry]})
        target.faults = [unclear] * 4
        rows = [response(1), response(2), response(3)]
        assert work.run(rows).counts == {"in_doubt": 1, "planned": 2}
        assert work.run(rows).counts == {"created": 3}
        assert notes(work) == {"p1": [3]}


def test_a_response_in_doubt_from_another_file_is_settled_before_a_new_one_shares_its_note(tmp_path):
    """LEDGER-01: its answer was lost, and another file has it behind a new response of the day."""
    with serving(WithNotes()) as target, closing(Work(tmp_path, target)) as work:
        share(work)
        target.faults = ["lost_after"] + ["lost_before"] * 30
        assert work.run([response(2)], "answers-1").counts == {"in_doubt": 1}
        target.faults = []
        work.run([response(1), response(2)], "answers-2")
        assert set(work.states().values()) == {"created"}
        assert notes(work) == {"p1": [2]}


def test_a_first_response_that_cannot_be_read_ends_the_load_and_guesses_nothing(work):
    work.run([response(1)], "answers-1")
    broken = bodies(work)["k1"]
    kept = dict(broken)
    broken["extension"] = [{"url": "http://example.com/other", "valueId": "x"}]
    loaded = work.run([response(2)], "answers-2")
    assert loaded.unusable == 'the target does not show the notes of its responses, which notes = "patient-day" needs'
    assert loaded.counts == {"planned": 1}
    broken |= kept
    assert work.run([response(2)], "answers-2").counts == {"created": 1}
    assert notes(work) == {"p1": [2]}


def test_the_note_id_is_added_beside_other_extensions_of_a_resource():
    other = {"url": "http://example.com/link", "valueString": "x"}
    for more in ({}, {"extension": [other]}):
        line, lines, key, lane, _, content, patient, at, cents, body = response(1, **more)
        row = AcceptedRow(line, lines, key, lane, content, patient, at, cents, body, DAY)
        note = {"url": NOTE_ID, "valueId": "n"}
        sent = json.loads(in_note(row, json.dumps(note)).body)
        assert sent == {**json.loads(body), "extension": [note, *more.get("extension", ())]}


# -- from a feed file to the notes of a store

HEADER = "response_id,patient_id,questionnaire,authored,encounter_id,question,answer_text"
FEED = 'kind = "answers"\nfiles = ["forms*.csv"]\nnotes = "patient-day"\ntimezone = "America/New_York"\n'


def forms(home, name, *rows):
    """A file of responses, each as key, patient, time and encounter; its path."""
    feed_file(home, "forms", FEED, HEADER)
    (home / "inbox").mkdir(exist_ok=True)
    lines = [",".join((key, p, "q-intake", at, visit, "remarks", f"said {key}")) for key, p, at, visit in rows]
    path = home / "inbox" / name
    path.write_text("\n".join([HEADER, *lines, ""]))
    return path


MONDAY = (
    ("r1", "p1", "2026-03-02 08:00", ""),
    ("r2", "p1", "2026-03-02 23:30", ""),
    ("r3", "p1", "2026-03-03 00:30", ""),
    ("r4", "p2", "2026-03-02 09:00", ""),
    ("r5", "p1", "2026-03-02 09:00", "e1"),
)
"""Two notes of p1 by its days and that of its visit, and one of p2."""


@pytest.fixture(params=[False, True], ids=["with additions", "bare"])
def imported(request, tmp_path, monkeypatch, capsys):
    """A home over a real service, the service, and an import of one file: its summary."""
    commands.forget_settings(monkeypatch)
    publish_nothing(monkeypatch)
    with running(tmp_path, interface_only=request.param) as service:
        credentials = service.service.auth.add_client("importer")
        monkeypatch.setenv("FHIR_BASE_URL", service.url)
        for name in ("client_id", "client_secret"):
            monkeypatch.setenv(f"FHIR_{name.upper()}", credentials[name])
        home = tmp_path / "home"
        home.mkdir()

        def asked(*arguments):
            capsys.readouterr()
            assert run(["--home", str(home), *arguments, "--json"]) == 0
            return json.loads(capsys.readouterr().out)

        yield home, service, asked


@pytest.mark.then_published
def test_a_feed_file_makes_one_note_of_a_patient_and_day(imported):
    """Also over files, with a ledger that was lost and rebuilt, and after an undo."""
    home, service, asked = imported

    def there():
        return in_notes(commands.resources(service.client, "QuestionnaireResponse"))

    forms(home, "forms-1.csv", *MONDAY)
    first = asked("import")["batches"][0]
    assert (first["counts"]["created"], there()) == (5, {"p1": [2, 1, 1], "p2": [1]})
    forms(home, "forms-2.csv", ("r6", "p1", "2026-03-02 10:00", ""), ("r7", "p2", "2026-03-02 10:00", ""))
    assert asked("import")["totals"]["created"] == 2
    assert there() == {"p1": [3, 1, 1], "p2": [2]}
    lose_ledger(home)
    assert asked("verify", "--adopt")["left"] == {}
    forms(home, "forms-3.csv", ("r8", "p1", "2026-03-02 11:00", ""), ("r9", "p2", "2026-03-02 11:00", ""))
    assert asked("import")["totals"]["created"] == 2
    assert there() == {"p1": [4, 1, 1], "p2": [3]}
    asked("undo", first["batch_id"])
    assert there() == {"p1": [2], "p2": [2]}
    forms(home, "forms-4.csv", ("r10", "p1", "2026-03-02 12:00", ""), ("r11", "p1", "2026-03-03 12:00", ""))
    assert asked("import")["totals"]["created"] == 2
    assert there() == {"p1": [3, 1], "p2": [2]}
    assert asked("verify")["differences"] == []


@pytest.mark.long
def test_a_rehearsal_shares_notes_as_the_import_does(tmp_path, monkeypatch, capsys):
    """CLI-CMD-01"""
    commands.forget_settings(monkeypatch)
    publish_nothing(monkeypatch)
    home = tmp_path / "home"
    commands.home_with(small_world(), home)
    path = forms(home, "forms-1.csv", *MONDAY)
    assert run(["--home", str(home), "feeds", "check", str(home / "feeds" / "forms.toml")]) == 0
    assert "notes: one per patient and day in America/New_York" in capsys.readouterr().out
    for command in ("rehearse", "import"):
        assert run(["--home", str(home), command, str(path), "--json"]) == 0
        out = capsys.readouterr().out
    assert json.loads(out)["totals"]["created"] == 5
    with commands.serving(home) as client:
        assert in_notes(commands.resources(client, "QuestionnaireResponse")) == {"p1": [2, 1, 1], "p2": [1]}
