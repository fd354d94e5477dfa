"""The page `report.html` is self-contained, shows its figures as tables and charts, and has no patient data."""

import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pipelines.feeds.terms.rulebook import rules
from pipelines.home.folder import REFERENCE_NOTE
from pipelines.ledger.rows import Intent, Outcome, Reason, Reject
from pipelines.reports.newer_load import PAGE, tell_newer
from pipelines.reports.publication import PublicationError
from tests.support.ledgers import close_rejects
from tests.support.publishing import (
    BATCH,
    CBC,
    LAB,
    OF,
    PAGED,
    START,
    TARGET,
    World,
    import_payments,
    payment,
    publish_only,
    report,
    write_accepted,
)

ADDRESS_ATTRIBUTES = {"href", "src", "srcset", "action", "data", "poster", "xlink:href"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    publish_only(monkeypatch, *PAGED, "report_latest")
    made = World(tmp_path)
    yield made
    made.ledger.close()


class Page(HTMLParser):
    """The addresses that a page names, and its tables as text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._rows: list[list[str]] = []
        self._in = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ADDRESS_ATTRIBUTES]
        if tag in ("caption", "th", "td"):
            self._in = tag
            if tag == "caption":
                self._rows = []
            else:
                self._rows[-1].append("")
        elif tag == "tr":
            self._rows.append([])

    def handle_data(self, data: str) -> None:
        if self._in == "caption":
            self.tables[data] = self._rows
        elif self._in:
            self._rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == self._in:
            self._in = ""

    def table(self, starts: str) -> list[list[str]]:
        return next(table for caption, table in self.tables.items() if caption.startswith(starts))


def page(world: World) -> tuple[str, Page]:
    html = world.publish().page.read_text(encoding="utf-8")
    return html, Page(html)


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    """A world with payments of every outcome, and its page, for tests that change neither."""
    made = World(tmp_path_factory.mktemp("paid"))
    import_payments(made)
    with pytest.MonkeyPatch.context() as patch:
        publish_only(patch, *PAGED, "report_latest")
        html, _ = page(made)
    yield made, html
    made.ledger.close()


def test_the_page_shows_the_figures_of_the_tables(paid: tuple[World, str]) -> None:
    """STATE-HOME-04"""
    shown = Page(paid[1])
    assert shown.table("Reports by month") == [
        ["Month", "Laboratory", "Radiology", "All"],
        ["2026-01", "3", "0", "3"],
        ["2026-02", "1", "0", "1"],
        ["Without a date", "0", "1", "1"],
        ["Total", "4", "1", "5"],
    ]
    assert shown.table("Turnaround")[1:] == [["CBC panel", "Laboratory", "4", "6.0", "9.2", "10.0", "1"]]
    assert [[*row[:3], *row[4:]] for row in shown.table("Files")[1:]] == [
        ["payments.csv", "payments", "loaded", "3", "2", "1", "0", "0", "0", "0"],
        ["payments.csv", "payments", "in doubt", "7", "3", "0", "1", "2", "1", "1"],
        ["Total", "", "", "10", "5", "1", "1", "2", "1", "1"],
    ]
    assert [row[:3] for row in shown.table("Records set aside")[1:]] == [
        ["PAY-9", "1", "1"],
        ["FEED-1", "0", "1"],
        ["PAY-2", "0", "1"],
    ]
    assert shown.table("Money")[1:] == [
        ["2026-02", "$64.17", "$44.05", "$10.07", "$10.05"],
        ["Total", "$64.17", "$44.05", "$10.07", "$10.05"],
    ]


def test_a_failed_file_needs_a_look_until_its_records_are_answered_or_its_rows_purged(world: World) -> None:
    """STATE-HOME-04: files that are failed now are named with the reason, not all that ever failed. A file of the same
    name does not count as its correction.
    """
    failed(world, "tasks-000000000000", "k1")
    failed(world, "payments-000000000001")
    payments, tasks = ([f"{name}.csv", "Nothing of it was loaded: the pages ran out"] for name in ("payments", "tasks"))
    assert problems(world) == [payments, tasks]
    world.run("payments-000000000003", {})
    world.run("tasks-000000000003", {})
    assert problems(world) == [payments, tasks]
    world.begin("tasks-000000000004")
    with world.ledger.lease(TARGET) as lease:
        found = Intent("k1", 1, "tasks-000000000004", 2, "other", "f1", "p1", None, None)
        world.ledger.intend(lease, *OF, [found])
        world.ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201)])
    world.run("tasks-000000000004", dict.fromkeys(("lines", "records", "accepted", "created"), 1))
    assert problems(world) == [payments]
    shutil.rmtree(world.home / "batches" / "payments-000000000001")
    html, shown = page(world)
    assert "needs attention" not in html.lower()
    answered = "not loaded, answered since"
    assert [row[2] for row in shown.table("Files")[1:]] == ["loaded", "loaded", "loaded", answered, answered, ""]


@pytest.mark.long
def test_a_file_whose_records_were_accepted_by_a_later_run_is_not_shown_as_not_loaded(world: World) -> None:
    """STATE-HOME-04"""
    two = [payment("k2", 2, 1000), payment("k3", 3, 2000)]
    refusal = [Reason("PAY-9", None, None, "Unprocessable entity", True)]
    world.begin(BATCH)
    with world.ledger.lease(TARGET) as lease:
        world.ledger.intend(lease, *OF, two)
        world.ledger.settle(TARGET, *OF, [Outcome(each.key, 1, "refused", None, 503) for each in two])
        rejects = [Reject(i.line, 1, i.key, "load", i.patient_id, i.source_at, i.amount_cents, refusal) for i in two]
        world.ledger.reject(TARGET, *OF, BATCH, rejects)
        world.run(BATCH, {"lines": 3, "records": 2, "accepted": 2, "refused": 2})
        assert ["payments.csv", "None of its 2 records was taken."] in problems(world)
        world.ledger.intend_again(lease, *OF, two[:1])
        world.ledger.settle(TARGET, *OF, [Outcome("k2", 1, "created", "id-2", 201)])
        close_rejects(world.ledger, TARGET, ["k2"], BATCH)
    assert problems(world) == [["payments.csv", "1 record is set aside."]]
    assert page(world)[1].table("Files")[1][2] == "loaded, some set aside"


@pytest.mark.long
def test_the_records_of_a_stopped_file_are_shown_as_not_sent(world: World) -> None:
    """STATE-HOME-04: the bar of a file and its row in the table show all of its records."""
    world.begin(BATCH)
    world.ledger.reject(TARGET, *OF, BATCH, [Reject(2, 1, "k2", "rule", "p1", None, None, [])])
    counts = {"lines": 3, "records": 3, "accepted": 2, "rejected": 1}
    run = world.ledger.start_run(TARGET, BATCH, feed_hash="f1", rules_version="1")
    world.ledger.finish_run(TARGET, BATCH, run, state="stopped", counts=counts)
    world.ledger.finish_batch(TARGET, BATCH, "stopped", counts)
    html, shown = page(world)
    heads, row, total = shown.table("Files")
    told = dict(zip(heads, row, strict=True))
    assert {name: told[name] for name in ("Now", "Records", "Rejected", "Not sent")} == {
        "Now": "not loaded, answered since",
        "Records": "3",
        "Rejected": "1",
        "Not sent": "2",
    }
    assert sum(map(int, row[5:-1])) == int(told["Records"]) == int(total[4])
    assert "payments.csv, Not sent: 2" in html
    assert "Taken back" not in heads


@pytest.mark.long
def test_every_rule_that_set_a_record_aside_is_in_the_figures(world: World) -> None:
    """STATE-HOME-04: the page says that the rules below tell what to do about open rejects."""
    broken = [Reason(f"PAY-{number:02}", None, None, "more than two decimals", False) for number in range(1, 20)]
    world.begin(BATCH)
    world.ledger.reject(TARGET, *OF, BATCH, [Reject(2, 1, "k2", "rule", "p1", None, None, broken)])
    world.run(BATCH, dict.fromkeys(("lines", "records", "rejected"), 1))
    html, shown = page(world)
    assert [row[0] for row in shown.table("Records set aside")[1:]] == [reason.rule_id for reason in broken]
    assert problems(world) == [
        ["payments.csv", "Its one record was not taken."],
        ["payments.csv", "1 record is set aside."],
    ]
    assert "at most 15 rules are drawn" in html


def problems(world: World) -> list[list[str]]:
    """Return the first two columns of the problems on the page."""
    return [row[:2] for row in page(world)[1].table("As of this publication")[1:]]


def test_the_page_shows_each_present_problem_with_its_remedy(paid: tuple[World, str]) -> None:
    """STATE-HOME-04"""
    shown = Page(paid[1])
    assert shown.table("As of this publication")[1:] == [
        [
            "payments.csv",
            "1 row was sent, and the outcome is not known.",
            "chartferry doubts resolve looks each row up again, and names the resources that may be the row's.",
        ],
        [
            "payments.csv",
            "1 record is set aside.",
            "chartferry rejects export writes them to files; the rules below say what to do about each.",
        ],
    ]


@pytest.mark.long
def test_words_of_a_target_are_shown_once_records_of_five_patients_share_them(world: World) -> None:
    """STATE-HOME-04: they may name a person, who may have many records."""
    said = [f"Patient/p-{n} is not known to Dr. Lee, balance {n}0.50" for n in range(9)]
    rejects(world, "business-rule", said, patients=5)
    rejects(world, "processing", said, first=20, patients=4)
    examples = {row[0]: row[4] for row in page(world)[1].table("Records set aside")[1:]}
    assert examples == {
        "business-rule": "PaymentNotice.amount.value: Patient/… is not known to …, balance … (9)",
        "processing": "",
    }


def test_a_target_s_own_code_is_no_name_on_the_page(world: World) -> None:
    """STATE-HOME-04: it may be any word in small letters."""
    rejects(world, "janedoe", ["it may not be billed"] * 6)
    rejects(world, "code-invalid", ["it may not be billed"], first=20)
    html, shown = page(world)
    assert "janedoe" not in html
    assert [row[:2] for row in shown.table("Records set aside")[1:]] == [["another code", "6"], ["code-invalid", "1"]]


@pytest.mark.long
def test_an_impossible_amount_is_left_out_of_sums_and_shown_with_its_rule_and_remedy(world: World) -> None:
    """STATE-HOME-04"""
    import_payments(world)
    rejects(world, "PAY-28", ["the amount is above 9999999.99"], cents=10**12)
    html, shown = page(world)
    assert [row for row in shown.table("Records set aside") if row[0] == "PAY-28"] == [
        [
            "PAY-28",
            "1",
            "0",
            "An amount is at most 9,999,999.99.",
            "PaymentNotice.amount.value: the amount is above 9999999.99 (1)",
            rules()["PAY-28"].do,
        ]
    ]
    assert shown.table("Money")[-1] == ["Total", "$64.17", "$44.05", "$10.07", "$10.05"]
    assert "1 amount is above $9,999,999.99, too high for a payment, and left out of every sum" in html
    assert "of $64.17 received, repeats counted once, impossible amounts left out" in html


def rejects(world: World, rule: str, messages: list[str], first: int = 2, cents: int = 100, patients: int = 1) -> None:
    """Add a batch whose records, of a number of patients, were all rejected by one rule."""
    batch = f"payments-00000000{first:04}"
    world.begin(batch)
    found = [
        Reject(
            line,
            1,
            f"z{line}",
            "rule",
            f"p{line % patients + 1}",
            None,
            cents,
            [Reason(rule, "PaymentNotice.amount.value", None, said, False)],
        )
        for line, said in enumerate(messages, first)
    ]
    world.ledger.reject(TARGET, *OF, batch, found)
    counts = {"header": 1, "lines": len(found) + 1, "records": len(found), "rejected": len(found)}
    world.run(batch, counts)


def test_the_page_says_when_a_load_ended_after_it_was_made(world: World) -> None:
    """STATE-HOME-04: until the next publication replaces the page."""
    import_payments(world)
    says = "These numbers are older than the last load: another one ended on 01 March 2026, "
    html, _ = page(world)
    tell_newer(world.home, world.ledger, TARGET)
    assert (world.home / "published" / PAGE).read_text(encoding="utf-8") == html
    world.run("payments-000000000003", {})
    tell_newer(world.home, world.ledger, "urn:uuid:another")
    assert says not in (world.home / "published" / PAGE).read_text(encoding="utf-8")
    tell_newer(world.home, world.ledger, TARGET)
    told = (world.home / "published" / PAGE).read_text(encoding="utf-8")
    assert told.count(says) == 1
    world.run("payments-000000000004", {})
    tell_newer(world.home, world.ledger, TARGET)
    assert (world.home / "published" / PAGE).read_text(encoding="utf-8") == told
    assert says not in page(world)[0]


def test_the_page_says_when_reference_data_was_loaded_after_its_reports_were_read(world: World) -> None:
    """STATE-HOME-04"""
    note, after = world.home / REFERENCE_NOTE, START.timestamp() + 86_400
    says = "The reports were read on 01 March 2026, "
    note.touch()
    os.utime(note, (after, after))
    html, _ = page(world)
    assert says in html
    assert "Reference data was loaded on 02 March 2026, 12:00 UTC, and its reports may be missing here." in html
    os.utime(note, (1, 1))
    assert says not in page(world)[0]


def failed(world: World, batch: str, *keys: str) -> None:
    """Add a failed batch. keys: those of the records in its file, if its run read the whole file."""
    feed, folder = batch.partition("-")[0], world.home / "batches" / batch
    (folder / "source").mkdir(parents=True)
    if keys:
        (folder / "run-1").mkdir()
        write_accepted(folder / "run-1", {line: (key, f"h-{key}", "{}") for line, key in enumerate(keys, 2)})
    world.ledger.start_batch(TARGET, batch, feed=feed, source=OF[0], resource_type=OF[1], file_name=f"{feed}.csv")
    run = world.ledger.start_run(TARGET, batch, feed_hash="f1", rules_version="1")
    world.ledger.finish_run(TARGET, batch, run, state="failed", counts={}, message=f"{feed}.csv: the pages ran out")
    world.ledger.finish_batch(TARGET, batch, "failed", {})


def test_the_page_loads_nothing_from_elsewhere(paid: tuple[World, str]) -> None:
    """STATE-HOME-04"""
    html, shown = paid[1], Page(paid[1])
    assert all(address.startswith("#") or address == "data:," for address in shown.addresses)
    assert not {"script", "img", "iframe", "object", "embed", "form"} & set(shown.tags)
    assert not re.search(r"url\(|@import|https?://", html)
    assert "default-src 'none'" in html


def test_a_chart_has_a_description_and_a_table(paid: tuple[World, str]) -> None:
    html, shown = paid[1], Page(paid[1])
    charts = re.findall(r'<svg role="img".*?</svg>', html, re.DOTALL)
    assert len(shown.tables) == 6
    assert len(charts) == 2 * shown.tags.count("figure") == 10
    for chart in charts:
        drawn = ET.fromstring(chart)  # noqa: S314 - our own
        named = {each.get("id"): each.text for each in drawn if each.get("id")}
        assert all(named[name] for name in drawn.attrib["aria-labelledby"].split())
        assert drawn.findall("rect")
    assert shown.tags.count("caption") == 6
    assert '<html lang="en">' in html


def test_nothing_of_a_patient_is_on_the_page(paid: tuple[World, str]) -> None:
    """STATE-HOME-04, REPORT-25"""
    world, html = paid
    names = {
        row[0] for row in world.rows("SELECT patient_id FROM import_row UNION SELECT patient_id FROM report_latest")
    }
    keys = {
        row[0] for row in world.rows("SELECT source_key FROM import_row UNION SELECT report_id FROM diagnostic_report")
    }
    words = set(re.findall(r"[\w-]+", re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)))
    assert names
    assert not words & (names | keys | {"PLANTED-TEXT"})


def test_names_from_the_target_are_shown_as_text_and_never_as_markup(world: World) -> None:
    evil = "</title><script>alert(1)</script>\"'<b>&"
    world.reports = [
        report("r1", category=[{"coding": [{**LAB, "display": evil}]}], code={"coding": [{**CBC, "display": evil}]})
        | {"effectiveDateTime": "2026-01-01T00:00:00Z", "issued": "2026-01-02T00:00:00Z"}
    ]
    html, shown = page(world)
    assert "script" not in shown.tags
    assert "b" not in Page(re.sub(r"<dd>.*?</dd>", "", html)).tags
    assert shown.table("Reports by month")[0][1] == evil
    assert shown.table("Turnaround")[1][0] == evil


@pytest.mark.alike
@pytest.mark.parametrize(
    ("issued", "head", "cell", "drawn"),
    [
        ("10:30:00", "Median min", "30.0", "30 min"),
        pytest.param("10:00:00.400", "Median s", "0.4", "0.4 s", marks=pytest.mark.long),
        pytest.param("10:00:00", "Median h", "0.0", "0 h", marks=pytest.mark.long),
    ],
)
def test_turnarounds_are_shown_in_a_unit_that_suits_them(
    world: World, issued: str, head: str, cell: str, drawn: str
) -> None:
    """STATE-HOME-04: a laboratory that answers within the hour does not get a row of zeros."""
    world.reports = [report("r1", effectiveDateTime="2026-01-10T10:00:00Z", issued=f"2026-01-10T{issued}Z")]
    html, shown = page(world)
    assert [row[3] for row in shown.table("Turnaround")] == [head, cell]
    assert f">{drawn}<" in html


def test_a_home_without_anything_still_has_a_page(world: World) -> None:
    world.reports = []
    html, shown = page(world)
    assert html.count("Nothing to show yet.") == 5
    assert not shown.tables


@pytest.mark.long
def test_odd_months_are_counted_and_do_not_stretch_the_chart(world: World) -> None:
    times = ["0999-01-01", "1960-05-01", "2026-02-01T00:00:00Z", "2999-01-01", "9999-12-31T23:59:59Z", None]
    world.reports = [report(f"r{n}", **({"effectiveDateTime": time} if time else {})) for n, time in enumerate(times)]
    _, shown = page(world)
    assert [row[0::2] for row in shown.table("Reports by month")[1:]] == [
        ["Earlier", "2"],
        ["2026-02", "1"],
        ["Later", "2"],
        ["Without a date", "1"],
        ["Total", "6"],
    ]


@pytest.mark.long
def test_the_page_is_replaced_whole_and_read_only(world: World) -> None:
    """STATE-HOME-04"""
    first = world.publish().page
    with first.open(encoding="utf-8") as open_page:
        before = open_page.read()
        world.reports = []
        world.publish()
        open_page.seek(0)
        assert open_page.read() == before
    assert first.read_text(encoding="utf-8") != before
    assert first.stat().st_mode & 0o777 == 0o444
    assert first == world.home / "published" / "report.html"
    assert TARGET in before


def test_a_page_that_cannot_be_made_leaves_the_last_publication(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = world.publish()
    world.reports.append(report("r7"))
    monkeypatch.setattr("pipelines.reports.page.TILES", "SELECT secret FROM payment")
    with pytest.raises(PublicationError, match=r"^not published: report.html could not be made \(\w+\)$"):
        world.publish()
    assert world.rows("SELECT max(published_at) FROM publication") == [(before.published_at,)]
