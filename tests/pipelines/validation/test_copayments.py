"""Payments with a claim are said, with number and sum, wherever a person looks before or after they are sent."""

import json

import duckdb
import pytest

from pipelines.feeds.drafting.draft import draft

HEADER = "payment_id,patient_id,amount,paid_on,claim_id,method\n"
CASH = "3,p1,5.00,2026-03-03,,cash\n"
ROWS = f"1,p1,10.00,2026-03-01,c1,copay\n2,p1,20.50,2026-03-02,c2,copay\n{CASH}{CASH}"
NOT_HELD = "copayments, which may take the balance below zero"
SAID = f"2 of the payments, 30.50, have a claim: {NOT_HELD}; without a claim: 1, 5.00"


def test_a_draft_takes_no_claim_until_somebody_has_decided(tmp_path):
    """LEDGER-23: a careful reader who leaves the lines as they are loads no copayment."""
    (tmp_path / "payments.csv").write_text(HEADER + ROWS)
    text = draft(tmp_path / "payments.csv")
    taken = [line for line in text.splitlines() if "claim_id" in line and not line.startswith("#")]
    assert taken == []
    assert "# DECIDE: a payment with a claim is a copayment and may take the balance below zero" in text
    assert '# claim_id = { column = "claim_id", when = { "method" = "copay" } }' in text
    (tmp_path / "payments.csv").write_text("payment_id,patient_id,amount,paid_on\n1,p1,10.00,2026-03-01\n")
    assert "copayment" not in draft(tmp_path / "payments.csv")


@pytest.mark.long
@pytest.mark.publishes("import_batch", "import_run", "payment")
def test_an_import_says_its_copayments_and_so_do_the_tables(home, asked, chartferry, target):
    """LEDGER-23"""
    (home / "inbox/payments.csv").write_text(HEADER + ROWS)
    assert SAID in chartferry("import", "--dry-run")[1]
    code, out, _ = chartferry("import")
    assert (code, SAID in out) == (0, True)
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as tables:
        for name in ("import_batch", "import_run"):
            found = tables.sql(f"SELECT copayments, amount_copayments::varchar FROM {name}").fetchall()
            assert found == [(2, "30.50")]
        payments = tables.sql("SELECT source_key, kind, claim_id FROM payment ORDER BY source_key").fetchall()
        assert payments == [("1", "copayment", "c1"), ("2", "copayment", "c2"), ("3", "balance payment", None)]
    (home / "inbox/payments-2.csv").write_text(HEADER + ROWS)
    totals = asked("import")["totals"]
    assert (totals["copayments"], totals["amount_copayments"], totals["unchanged"]) == (2, 3050, 3)


def test_feeds_check_says_what_a_claim_does_and_counts_those_of_a_sample(tmp_path, home, chartferry):
    """LEDGER-23"""
    (tmp_path / "payments.csv").write_text(HEADER + ROWS)
    code, out, _ = chartferry("feeds", "check", "--sample", tmp_path / "payments.csv")
    assert code == 0
    assert "a payment with a claim_id is a copayment, which may take the patient's balance below zero" in out
    said = "2 of these are copayments, 30.50 in all: they may take the balance below zero; without a claim: 1, 5.00"
    assert said in out
    (tmp_path / "payments.csv").write_text(HEADER + CASH)
    assert "of these are copayments" not in chartferry("feeds", "check", "--sample", tmp_path / "payments.csv")[1]


# -- a file of copayments alone waits


def copays(first, number=20, claim="c{}"):
    rows = (f"{key},p1,1.00,2026-03-01,{claim.format(key)},copay\n" for key in range(first, first + number))
    return HEADER + "".join(rows)


def drop(home, text, name="payments.csv"):
    (home / "inbox" / name).write_text(text)


def only(found):
    (batch,) = found["batches"]
    return batch


def decisions(chartferry, name):
    return json.loads(chartferry("status", name, "--json")[1])["batches"][0]["decisions"]


def test_a_file_of_copayments_alone_waits_until_a_person_confirms_it(home, target, asked, chartferry):
    """LEDGER-23, CLI-IMPORT-06: also when it comes again, and retries do not send it."""
    drop(home, copays(1).replace(",p1,1.00,2026-03-01,c7", ",,1.00,2026-03-01,c7"))
    batch = only(found := asked("import"))
    name = batch["batch_id"]
    assert (found["exit_code"], batch["state"], target.of("PaymentNotice")) == (4, "stopped", [])
    assert batch["message"].startswith("payments.csv: all 19 payments that could be read have a claim")
    assert f"chartferry import --copayments {name}" in batch["message"]
    assert (batch["counts"]["copayments"], batch["counts"]["amount_copayments"]) == (19, 1900)
    assert [asked("import")["batches"], asked("rejects", "retry")["left"][0]["batch_id"]] == [[], name]
    drop(home, copays(1).replace(",p1,1.00,2026-03-01,c7", ",,1.00,2026-03-01,c7"), "payments-again.csv")
    assert only(asked("import"))["state"] == "stopped"
    assert chartferry("status")[1].splitlines()[2].split()[1:3] == [name, "stopped"]
    assert "0 taken back, 0 not" in chartferry("undo", name)[1]
    assert target.of("PaymentNotice") == []
    batch = only(found := asked("import", "--copayments", name, "--why", "asked the clinic"))
    assert (found["exit_code"], batch["state"], len(target.of("PaymentNotice"))) == (3, "finished", 19)
    decision = decisions(chartferry, name)[-1]
    assert [decision[part] for part in ("command", "subject", "why")] == [
        "import --copayments",
        name,
        "asked the clinic",
    ]
    drop(home, copays(100), "payments-2.csv")
    assert (asked("import")["exit_code"], len(target.of("PaymentNotice"))) == (0, 39)


@pytest.mark.alike
@pytest.mark.parametrize(
    ("text", "state"),
    [
        (copays(1, 19), "finished"),
        (copays(1) + "x,p1,1.00,2026-03-01,,cash\n", "finished"),
        (copays(1, claim=""), "finished"),
        (copays(1) + "x,,1.00,2026-03-01,,cash\n", "stopped"),
        (copays(1, 19) + "x,,1.00,2026-03-01,,cash\n", "stopped"),
    ],
    ids=["few", "another", "none", "all but a reject", "few and a reject"],
)
def test_a_file_of_twenty_payments_waits_if_all_accepted_ones_have_a_claim(home, asked, text, state):
    """LEDGER-23"""
    drop(home, text)
    assert only(asked("import"))["state"] == state


def test_a_dry_run_says_that_a_file_would_wait(home, asked):
    """LEDGER-23, CLI-IMPORT-10"""
    drop(home, copays(1))
    batch = only(found := asked("import", "--dry-run"))
    assert (found["exit_code"], batch["state"]) == (4, "stopped")
    assert "which makes them copayments" in batch["message"]


FEED = """
name = "till"
kind = "payments"
files = ["till*"]
copayments = "all"
[columns]
payment_id = "payment_id"
patient_id = "patient_id"
amount = "amount"
paid_on = "paid_on"
claim_id = "claim_id"
"""


def test_a_file_that_waits_goes_on_once_its_feed_says_that_all_are_copayments(home, target, asked, chartferry):
    """LEDGER-23: and is tried once for each change of the feed file, not by each import."""
    feed = home / "feeds" / "till.toml"
    feed.parent.mkdir()
    feed.write_text(FEED.replace('copayments = "all"\n', ""))
    drop(home, copays(1), "till.csv")
    (home / "inbox/till.csv.control.json").write_text('{"rows": 21}')
    assert "says 21 rows" in only(asked("import"))["message"]
    feed.write_text(FEED)
    assert "says 21 rows" in only(asked("import"))["message"]
    assert asked("import")["batches"] == []
    feed.write_text(FEED.replace('copayments = "all"\n', ""))
    drop(home, copays(1), "till.csv")
    (home / "inbox/till.csv.control.json").write_text('{"rows": 20}')
    assert "which makes them copayments" in only(asked("import"))["message"]
    assert target.of("PaymentNotice") == []
    feed.write_text(FEED)
    batch = only(found := asked("import"))
    assert (found["exit_code"], batch["state"], len(target.of("PaymentNotice"))) == (0, "finished", 20)
    assert (
        "a file of which all payments are copayments needs no confirmation (copayments)"
        in chartferry("feeds", "check", feed)[1]
    )


def test_a_confirmation_that_was_cut_off_goes_on_when_given_again(home, target, asked, chartferry, monkeypatch):
    """LEDGER-23"""
    drop(home, copays(1))
    name = only(asked("import"))["batch_id"]
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.received.validate", raise_interrupt)
        assert chartferry("import", "--copayments", name)[0] == 130
    assert asked("import", "--copayments", name)["exit_code"] == 0
    assert len(target.of("PaymentNotice")) == 20
    assert len(decisions(chartferry, name)) == 1


def raise_interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.alike
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "nope: no such batch at this target (chartferry status lists them)"),
        (["{}"], "{}: nothing to confirm: it does not wait for import --copayments"),
        (["{}", "--again", "{}"], "Error: --copayments BATCH excludes paths, --dry-run, --remap and --again"),
        (["{}", "--remap"], "Error: --copayments BATCH excludes paths, --dry-run, --remap and --again"),
    ],
)
def test_a_confirmation_that_does_not_apply_is_refused_in_one_sentence(
    home, target, asked, chartferry, arguments, said
):
    """LEDGER-23"""
    drop(home, copays(1, 2))
    name = only(asked("import"))["batch_id"]
    code, _, error = chartferry("import", "--copayments", *(each.format(name) for each in arguments))
    assert (code != 0, error.splitlines()[-1].removeprefix("chartferry: ")) == (True, said.format(name))
    assert len(target.of("PaymentNotice")) == 2


def test_a_file_is_confirmed_only_by_what_it_waits_for(home, target, asked, chartferry, monkeypatch):
    """LEDGER-23: nor while it is not known yet what that is; and no decision is put on record."""
    drop(home, copays(1))
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.received.validate", raise_interrupt)
        assert chartferry("import")[0] == 130
    [name] = [path.name for path in (home / "batches").glob("payments-*")]
    for option in ("--copayments", "--new"):
        code, _, said = chartferry("import", option, name)
        assert (code, f"{name}: nothing to confirm: it does not wait for import {option}" in said) == (4, True)
    assert only(asked("import"))["state"] == "stopped"
    assert chartferry("import", "--new", name)[0] == 4
    assert (decisions(chartferry, name), target.of("PaymentNotice")) == ([], [])


def test_other_kinds_have_no_copayments(tmp_path, chartferry):
    (tmp_path / "a.toml").write_text(FEED.replace('kind = "payments"', 'kind = "tasks"'))
    assert "copayments: only for kind = 'payments'" in chartferry("feeds", "check", tmp_path / "a.toml")[2]
