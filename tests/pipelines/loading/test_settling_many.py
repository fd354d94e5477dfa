"""Rows in doubt that are settled by identifier, and many of them in parts."""

from contextlib import closing

import pytest

from pipelines.client.steps import FREE_OF_RACES
from pipelines.ledger.former_versions import earlier_versions
from pipelines.ledger.ledger import Ledger
from pipelines.loading.settling import settle_doubts
from tests.support.fake_target import FakeTarget, serving
from tests.support.work import TARGET, Work, payment, response


def test_a_row_in_doubt_is_adopted_by_its_identifier(tmp_path):
    """CLI-CMD-08"""
    with serving(FakeTarget()) as target:
        work = Work(tmp_path, target)
        target.faults = ["lost_after", "error", "error", "error"]
        work.run([payment(1)])
        assert work.states() == {"k1": "in_doubt"}
        of = ("default", "PaymentNotice", "payments-1")
        settled = settle_doubts(
            work.ledger,
            work.client,
            TARGET,
            of,
            [tmp_path / "run-1" / "accepted.parquet"],
            step=FREE_OF_RACES,
            settling_seconds=0,
        )
        assert [(row.key, state) for row, state, _ in settled.adopted] == [("k1", "adopted")]
        work.agree()
        work.close()


def doubts_of_responses(work, monkeypatch):
    """Five responses in doubt that are there, three of them in place of earlier ones; returns a call that settles."""
    work.follow("answers", "supersede")
    work.run([response(number) for number in range(3)])
    work.target.faults = ["lost_after"] * 4
    rows = [response(number, text="no") for number in range(5)]
    monkeypatch.setattr("pipelines.loading.settling.ROWS_A_COMMIT", 2)
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.loading.sending.UNKNOWN_TRIES", 1)
        patched.setattr("pipelines.loading.intake.Intake.settle_doubts_again", lambda _: False)
        assert work.run(rows, "answers-2").counts == {"in_doubt": 5}
    of = ("default", "QuestionnaireResponse", "answers-2")
    files = [work.home / "run-2" / "accepted.parquet"]
    return lambda: settle_doubts(work.ledger, work.client, TARGET, of, files, step=FREE_OF_RACES, settling_seconds=0)


def test_many_rows_are_settled_in_parts_and_earlier_versions_asked_for_once(tmp_path, monkeypatch):
    """LEDGER-05, LEDGER-10: a kill between parts leaves what is settled settled; the next look settles the rest."""

    class Killed(BaseException):
        pass

    with serving(FakeTarget()) as target, closing(Work(tmp_path, target)) as work:
        settle, settle_in_ledger = doubts_of_responses(work, monkeypatch), Ledger.settle
        asked = []

        def killed_at_the_second(ledger, *of_outcomes):
            if sum(state != "in_doubt" for state in work.states().values()) > 1:
                raise Killed
            settle_in_ledger(ledger, *of_outcomes)

        def earlier(*of):
            asked.append(of[-1])
            return earlier_versions(*of)

        monkeypatch.setattr("pipelines.loading.settling.earlier_versions", earlier)
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "settle", killed_at_the_second)
            with pytest.raises(Killed):
                settle()
        assert work.states() == {
            "k0": "superseded",
            "k1": "superseded",
            **dict.fromkeys(("k2", "k3", "k4"), "in_doubt"),
        }
        assert [(row.key, state) for row, state, _ in settle().adopted] == [
            ("k2", "superseded"),
            ("k3", "adopted"),
            ("k4", "adopted"),
        ]
        assert asked == [["k0", "k1", "k2"], ["k2"]]
