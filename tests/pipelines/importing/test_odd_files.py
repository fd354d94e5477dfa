"""Entries of an inbox that are no exports, or have odd names: each is reported, and the others are imported."""

import json
import os

import pytest

from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.batch import printable_name
from pipelines.home.inbox import LEADS_OUT
from pipelines.receiving import stage as receive
from pipelines.session.waiting_files import find_files
from tests.support.exports import feed_file
from tests.support.ledgers import lose_ledger

HEADER = "payment_id,patient_id,amount,paid_on,claim_id\n"
LEFT = {
    "a pipe": (os.mkfifo, "payments-x.csv", "not a regular file", 4),
    "a link to nothing": (
        lambda path: path.symlink_to("not-there.csv"),
        "payments-x.csv",
        "a link that leads to no file",
        4,
    ),
    "a link to itself": (
        lambda path: path.symlink_to(path.name),
        "payments-x.csv",
        "a link that leads to no file",
        4,
    ),
    "a link that leads out": (lambda path: path.symlink_to(__file__), "payments-x.csv", LEADS_OUT, 4),
    "a folder": (
        lambda path: path.mkdir(),
        "payments-x.csv",
        "a folder, whose files are not looked at; to import them name it",
        0,
    ),
    "another name": (
        lambda path: path.touch(),
        "Payments.CSV",
        "no feed takes a file of this name (see: chartferry feeds check)",
        4,
    ),
    "totals alone": (
        lambda path: path.write_text('{"rows": 1}'),
        "payments-x.csv.control.json",
        "control totals, and the file that they are of is not here",
        4,
    ),
    "a name that is no text": (
        lambda path: path.touch(),
        os.fsdecode(b"caf\xe9\n.txt"),
        "no feed takes a file of this name (see: chartferry feeds check)",
        4,
    ),
}
NAMES = {
    "spaces and umlauts": "payments für März.csv",
    "bytes that are no text": os.fsdecode(b"payments-caf\xe9.csv"),
    "a line break": "payments-\n1.csv",
}


def rows(number):
    return HEADER + f"k{number},p{number},1.00,2026-03-01,\n"


@pytest.mark.parametrize("what", LEFT)
def test_an_inbox_entry_that_is_no_export_is_left_with_a_message(what, chartferry, home, target):
    """FEED-FILE-10: only a folder is no failure, since many keep their old files in one."""
    make, name, why, code = LEFT[what]
    make(home / "inbox" / name)
    (home / "inbox" / "payments-1.csv").write_text(rows(1))
    ended, out, _ = chartferry("import")
    assert ended == code
    assert f"{printable_name(home / 'inbox' / name)}: {why}; left where it is" in out.splitlines()
    assert [path.name for path in (home / "inbox").iterdir()] == [name]
    assert len(target.of("PaymentNotice")) == 1


def test_a_file_that_two_feeds_take_is_left_and_the_others_are_imported(chartferry, home, target):
    """FEED-FILE-08"""
    (home / "feeds").mkdir()
    for name in ("till", "shop"):
        (home / "feeds" / f"{name}.toml").write_text(
            f'kind = "payments"\nfiles = "{name[0]}*-x.csv"\n[columns]\npayment_id = 1\npatient_id = 2\n'
            "amount = 3\npaid_on = 4\n".replace('"t*', '"*')
        )
    (home / "inbox" / "s-x.csv").write_text(rows(1))
    (home / "inbox" / "payments.csv").write_text(rows(2))
    code, out, _ = chartferry("import")
    assert code == 4
    said = "shop.toml and till.toml: files: both take s-x.csv; change one of them; left where it is"
    assert f"{home}/inbox/s-x.csv: {said}" in out
    assert len(target.of("PaymentNotice")) == 1


@pytest.mark.parametrize("what", NAMES)
def test_a_file_is_imported_whatever_its_name(what, chartferry, home, target):
    """CLI-IMPORT-01, CLI-CMD-03, STATE-HOME-01: once and for all, and told by a name that can be printed."""
    (home / "inbox" / NAMES[what]).write_text(rows(1))
    assert chartferry("import")[0] == 0
    (home / "inbox" / NAMES[what]).write_text(rows(1))
    code, out, _ = chartferry("import", "--json")
    batch = json.loads(out)["batches"][0]
    assert (code, batch["counts"]["unchanged"]) == (0, 1)
    assert batch["file"] == printable_name(NAMES[what])
    assert batch["file"].isprintable()
    assert list((home / "inbox").iterdir()) == []
    assert chartferry("status", batch["batch_id"])[0] == 0
    assert len(target.of("PaymentNotice")) == 1


def test_a_file_name_too_long_for_its_control_totals_is_left_with_a_message(chartferry, home, target):
    """CLI-IMPORT-06"""
    name = f"payments{'x' * 243}.csv"
    (home / "inbox" / name).write_text(rows(1))
    (home / "inbox" / "payments.csv").write_text(rows(2))
    code, out, _ = chartferry("import")
    assert code == 4
    assert f"{name}: cannot be taken in: File name too long" in out.splitlines()
    assert len(target.of("PaymentNotice")) == 1


def test_a_batch_without_an_end_whose_feed_file_is_gone_is_named(chartferry, home, target):
    """CLI-CMD-17, LEDGER-01: by the import and by the adoption, and both go on with it once the feed file is back."""
    (home / "feeds").mkdir()
    feed = home / "feeds" / "till.toml"
    text = 'kind = "payments"\nfiles = "till*"\n[columns]\npayment_id = 1\npatient_id = 2\namount = 3\npaid_on = 4\n'
    feed.write_text(text)
    (home / "inbox" / "till.csv").write_text(rows(1))
    chartferry("import")
    lose_ledger(home)
    feed.unlink()
    (batch,) = home.glob("batches/till-*")
    why = "no feed file describes till any more: put it back among the feed files"
    code, out, _ = chartferry("verify", "--adopt")
    assert (code, f"{batch.name}: not adopted: {why}" in out.splitlines()) == (3, True)
    code, out, _ = chartferry("import")
    assert (code, f"{batch}: {why}; left where it is" in out.splitlines()) == (4, True)
    feed.write_text(text)
    assert chartferry("verify", "--adopt")[0] == 0
    assert chartferry("import")[0] == 0
    assert len(target.of("PaymentNotice")) == 1


def test_a_pipe_is_never_opened(tmp_path):
    os.mkfifo(tmp_path / "payments-pipe.csv")
    (tmp_path / "payments-1.csv").write_text("payment_id\n")
    matched, left = find_files([tmp_path], load_feeds([]))
    assert [waiting.path.name for waiting in matched] == ["payments-1.csv"]
    assert [each.path.name for each in left] == ["payments-pipe.csv"]


def test_a_copy_that_was_changed_in_its_batch_is_not_loaded_and_the_file_itself_mends_it(chartferry, home, target):
    """STATE-HOME-03: a batch is the bytes that it is named by, also when its run ended early."""
    whole = HEADER + "k1,p1,1.00,2026-03-01,\n"
    target.faults = ["forbidden"] * 100
    (home / "inbox" / "payments.csv").write_text(whole)
    assert chartferry("import")[0] == 6
    target.faults = []
    [copy] = home.glob("batches/payments-*/source/payments.csv")
    copy.write_text(whole.replace("1.00", "999.00"))
    code, out, _ = chartferry("import")
    assert code == 4
    assert "the copy in its batch was changed since it was received: put the file itself into the inbox" in out
    assert target.of("PaymentNotice") == []
    (home / "inbox" / "payments.csv").write_text(whole)
    assert chartferry("import")[0] == 0
    assert [body["amount"]["value"] for body in target.of("PaymentNotice")] == [1.0]
    assert chartferry("verify")[0] == 0


def test_a_file_named_that_may_not_be_read_fails_alone(home, chartferry, tmp_path, monkeypatch):
    """The other files that are named go on."""
    for name in ("payments-1.csv", "payments-2.csv"):
        (tmp_path / name).write_text(f"payment_id,patient_id,amount,paid_on\n{name},p1,1.00,2026-01-01\n")
    may, copy = os.access, receive._copy

    def copied(path, *rest):
        if path.name == "payments-1.csv":
            raise PermissionError(13, "Permission denied")
        return copy(path, *rest)

    monkeypatch.setattr(os, "access", lambda path, mode, **more: "payments-1" not in str(path) and may(path, mode))
    monkeypatch.setattr(receive, "_copy", copied)
    code, said, _ = chartferry("import", tmp_path / "payments-1.csv", tmp_path / "payments-2.csv")
    assert (code, "payments-1.csv: cannot be taken in: Permission denied" in said) == (4, True)
    assert " finished " in said


def test_unknown_column_names_are_printed_escaped_and_shortened(chartferry, home, target):
    """CLI-IMPORT-01: an empty name is printed as `(no name)`."""
    row = {"payment_id": "1", "patient_id": "p1", "amount": 1, "paid_on": "2026-01-01"}
    odd = {"": 1, "\x1b[31mred\x00": 2, "x" * 1000: 3}
    (home / "inbox" / "payments.ndjson").write_text(json.dumps(row | odd))
    code, out, _ = chartferry("import")
    [line] = [line for line in out.splitlines() if "columns that the feed does not name" in line]
    assert code == 0
    assert line.endswith(rf"name: (no name), \x1b[31mred\x00, {'x' * 80}...")


def test_a_sample_is_printed_with_control_characters_escaped(chartferry, tmp_path):
    """CLI-CMD-14"""
    sample = tmp_path / "tasks.ndjson"
    sample.write_text(
        json.dumps({"task_id": "1", "patient_id": "p1", "description": "a\x1b[2Jb", "status": "requested"})
    )
    _, out, _ = chartferry("feeds", "check", "--sample", sample)
    assert "a\\x1b[2Jb" in out
    assert "\x1b" not in out


def test_feeds_check_says_so_if_it_gets_an_export_in_place_of_a_feed_file(chartferry, tmp_path):
    """CLI-CMD-14"""
    export = tmp_path / "payments.csv"
    export.write_text(rows(1))
    code, _, err = chartferry("feeds", "check", export)
    assert code == 4
    assert err.splitlines()[-1] == (
        "chartferry: payments.csv: no feed file (*.toml); to try a feed with an export, write --sample before the name"
        " of the export"
    )


def test_a_file_that_is_still_being_written_under_a_name_with_a_dot_is_not_taken(home, target, asked):
    """CLI-IMPORT-01: whatever names its feed takes. Half of it would be imported."""
    feed_file(home, "till", 'kind = "payments"\nfiles = ["*.csv"]\n', HEADER)
    written = home / "inbox" / ".till.csv"
    written.write_text(HEADER + "k1,p1,1.00,2026-03-01,\n")
    found = asked("import")
    assert (found["exit_code"], found["batches"], found["unmatched"]) == (0, [], [])
    written.rename(home / "inbox" / "till.csv")
    assert asked("import")["totals"]["created"] == 1
