"""A feed file or a target that changes while rows of a batch have no end yet: they come to it, each once."""

import pytest

from tests.support.exports import feed_file
from tests.support.fake_target import FakeTarget, serving

HEAD = "task_id,patient_id,description,status,requester_id,due\n"
ROWS = HEAD + "k1,p1,call,requested,a,2026-03-01T10:00:00\nk2,p1,write,requested,a,2026-03-01T11:00:00\n"


def feed(home, timezone):
    feed_file(home, "calls", f'kind = "tasks"\nfiles = ["calls*"]\ntimezone = "{timezone}"\n', HEAD)


@pytest.mark.alike
@pytest.mark.parametrize("fault", ["lost_before", "lost_after"])
def test_rows_in_doubt_are_loaded_once_although_the_feed_changed_meanwhile(
    home, target, asked, monkeypatch, additions, fault
):
    """LEDGER-08, LEDGER-10: a row that is found stays as it was sent; another is sent as the feed reads it now."""
    monkeypatch.setattr("pipelines.client.pace.RetryPauses.wait", lambda *_: None)
    monkeypatch.setenv("CHARTFERRY_SETTLING_SECONDS", "0.01")
    target.known_parameters = {"_id", "identifier"}
    feed(home, "UTC")
    target.faults = [fault] * 4
    monkeypatch.setattr("pipelines.loading.intake.Intake.settle_doubts_again", lambda _: False)
    (home / "inbox" / "calls.csv").write_text(ROWS)
    assert asked("import")["totals"]["in_doubt"] == (2 if additions else 1)
    target.faults = []
    feed(home, "America/New_York")
    found = asked("import")
    assert (found["exit_code"], found["totals"]["in_doubt"]) == (0, 0)
    assert sorted(body["description"] for body in target.of("Task")) == ["call", "write"]
    assert asked("import")["batches"] == []
    assert {each["kind"] for each in asked("verify")["differences"]} <= {"changed"}


def test_a_batch_without_an_end_is_named_while_another_target_is_loaded(home, target, chartferry, monkeypatch):
    """LEDGER-10, CLI-CMD-19: its file is no longer in the inbox, and nothing of it goes to the other."""
    monkeypatch.setattr("pipelines.client.pace.RetryPauses.wait", lambda *_: None)
    feed(home, "UTC")
    (home / "inbox" / "calls.csv").write_text(ROWS)
    target.faults = ["forbidden"] * 9
    assert chartferry("import")[0] == 6
    with serving(FakeTarget(additions=False)) as other:
        other.valid_tokens.add("fixed")
        monkeypatch.setenv("FHIR_BASE_URL", other.url)
        said = chartferry("import")[1]
    assert "also knows the target urn:uuid:fake, with 1 unfinished batch" in said
