"""A home with reports and with payments of every outcome, for tests of publications."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.home.files import session
from pipelines.ledger.lease import utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Intent, Outcome, Reason, Reject, Repeat
from pipelines.reports import making
from pipelines.reports.building import comment
from pipelines.reports.changed_resources import sweep_changes
from pipelines.reports.making import make_tables
from pipelines.reports.publication import Publication
from pipelines.reports.publication_folder import being_built
from pipelines.reports.publish import publish
from pipelines.reports.results import sweep_results
from pipelines.reports.settings import settings_of
from pipelines.reports.sweep import Sweep, sweep
from pipelines.reports.tables import ReportTable, readable_tables, report_tables, staging_selects
from pipelines.reports.truths import TOTALS, count
from pipelines.reports.words import keep_names
from tests.support.ledgers import close_rejects
from tests.support.unpublished import MODULES

TARGET = "urn:uuid:5f0c7c5e-0000-4000-8000-000000000001"
OF = ("default", "PaymentNotice")
BATCH = "payments-0123456789ab"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
LAB = {"system": "http://terminology.hl7.org/CodeSystem/v2-0074", "code": "LAB", "display": "Laboratory"}
RAD = {"system": "http://loinc.org", "code": "LP29684-5", "display": "Radiology"}
CBC = {"system": "http://loinc.org", "code": "58410-2", "display": "CBC panel"}
CBC_LOCAL = {"system": "http://example.com", "code": "CBC"}


def report(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "resourceType": "DiagnosticReport",
        "id": name,
        "text": {"status": "generated", "div": "<div>PLANTED-TEXT</div>"},
        "status": "final",
        "category": [{"coding": [LAB]}],
        "code": {"coding": [CBC], "text": "Complete blood count"},
        "subject": {"reference": "Patient/p1", "type": "Patient"},
        **fields,
    }


def practitioners(*names: str) -> list[dict[str, str]]:
    return [{"reference": f"Practitioner/{name}", "type": "Practitioner"} for name in names]


REPORTS = [
    report(
        "r1",
        category=[{"coding": [LAB, {"code": "X"}]}, {"coding": [RAD]}],
        code={"coding": [CBC, CBC_LOCAL], "text": "Complete blood count"},
        encounter={"reference": "Encounter/e1", "type": "Encounter"},
        effectiveDateTime="2026-01-31T23:30:00-02:00",
        issued="2026-02-01T03:30:00+00:00",
        performer=practitioners("d1", "d2"),
        result=[{"reference": "Observation/o1"}, {"reference": "Observation/o2"}],
        presentedForm=[{"contentType": "text/plain", "url": "http://x/DiagnosticReport/r1/files/presentedForm/0"}],
    ),
    report(
        "r2",
        effectiveDateTime="2026-01-10T10:00:00.5Z",
        issued="2026-01-10T20:00:00.500+00:00",
        performer=practitioners("d1"),
    ),
    report("r3", effectiveDateTime="2026-01-05", issued="2026-01-06T00:00:00+00:00", performer=practitioners("d1")),
    report("r4", effectiveDateTime="2026-01-10T10:00:00Z", issued="2026-01-10T08:00:00Z"),
    report(
        "r5",
        status="entered-in-error",
        effectiveDateTime="2026-01-01T00:00:00Z",
        issued="2026-01-11T00:00:00Z",
        performer=practitioners("d3"),
    ),
    report("r6", category=[{"coding": [RAD]}], code={"text": "No coding"}, subject={"reference": "Patient/p2"}),
]


OURS = {table.name: table for table in report_tables()}
"""The tables of the project."""


PAGED = (
    *(
        "publication",
        "import_row",
        "import_run",
        "reject",
        "reject_reason",
        "rule",
        "payment",
        "payment_reconciliation",
        "practitioner",
        "care_group",
    ),
    *("report_volume_by_month", "report_turnaround", "reject_by_rule", "reject_by_age"),
)
"""The tables that the page of a publication reads."""
WIDE = ("questionnaire_response", "questionnaire", "question", "answer", "answer_option")
"""The tables that a questionnaire's tables are made from."""
STAGED = ("swept_report", "swept_response", "waiting_payment")
"""The staged tables that code other than the SQL of tables reads."""


def publish_only(patch: pytest.MonkeyPatch, *names: str, wide: bool = False) -> None:
    """Let publications make only these tables and those that they need, and no page.

    The page and the statements of `TOTALS` are made if their tables are. For tests of a few tables: all tables take a
    second.

    wide: true to make the tables of each questionnaire, too.
    """
    wanted = closure({"diagnostic_report", "import_batch", *names, *(WIDE if wide else ())})

    def few(read: Callable[[Path], list[ReportTable]]) -> Callable[[Path], list[ReportTable]]:
        return lambda home: [each for each in read(home) if each.name in wanted or each.name not in OURS]

    selects = staged_for(*STAGED, *(OURS[name].select for name in wanted & OURS.keys()))
    patch.setattr("pipelines.reports.staging.staging_selects", lambda: selects)
    patch.setattr("pipelines.reports.making.report_tables", few(report_tables))
    if "pipelines.dagster.reports.assets" in sys.modules:  # it takes seconds to import
        patch.setattr("pipelines.dagster.reports.assets.readable_tables", few(readable_tables))
    if not wide:
        patch.setattr("pipelines.reports.making.response_tables", lambda *_: [])
    if not wanted.issuperset(PAGED):
        patch.setattr("pipelines.reports.publish.page_of", lambda *_: "")
    held = {said: query for said, query in TOTALS.items() if wanted.issuperset(OURS.keys() & re.findall(r"\w+", query))}
    patch.setattr("pipelines.reports.truths.TOTALS", held)


def staged_for(*texts: str) -> dict[str, str]:
    """Return the staged tables that these texts name, with all tables that those are made from."""
    every = staging_selects()
    named = every.keys() & set(re.findall(r"\w+", " ".join(texts)))
    inputs = {word for name in named for word in re.findall(r"\w+", every[name])} & every.keys()
    return {name: every[name] for name in every if name in named} if inputs <= named else staged_for(*named, *inputs)


@contextmanager
def few_tables() -> Iterator[None]:
    """Let new Dagster definitions have few tables. With all sixty they take twice as long."""
    with pytest.MonkeyPatch.context() as patch:
        publish_only(patch)
        yield


@contextmanager
def comments_of_ours_are_left_out() -> Iterator[None]:
    """Let publications leave the comments of the project's own tables out, which take an eighth of their time.

    There are six hundred, DuckDB takes as long for each as for a query, and they are always the same.
    """

    def comment_others(db: duckdb.DuckDBPyConnection, table: ReportTable) -> None:
        if table != OURS.get(table.name):
            comment(db, table)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "comment", comment_others)
        yield


@contextmanager
def all_comments() -> Iterator[None]:
    """Let publications write all comments, for tests of comments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "comment", comment)
        yield


def publish_nothing(patch: pytest.MonkeyPatch) -> None:
    """Let imports, retries and undos publish nothing, for tests that read no table."""
    for module in MODULES:
        patch.setattr(f"pipelines.importing.{module}.publish_into", lambda *_: None)


def publish_as_marked(patch: pytest.MonkeyPatch, test: pytest.Item) -> None:
    """Let imports, retries and undos publish the tables that the mark `publishes` of a test names, or all.

    Without the mark they publish nothing. With `wide=True` they publish the tables of each questionnaire, too.
    """
    mark = test.get_closest_marker("publishes")
    if mark is None:
        publish_nothing(patch)
    elif mark.args:
        publish_only(patch, *mark.args, **mark.kwargs)


def closure(names: set[str]) -> set[str]:
    """Return these tables and all tables that they need."""
    needed = {
        other
        for name in names & set(OURS)
        for other in (*OURS[name].inputs, *(other for _, other in OURS[name].references))
    }
    return names if needed <= names else closure(names | needed)


class Target:
    def __init__(self, resources: list[dict[str, Any]]) -> None:
        self.resources = resources
        self.asked: list[tuple[str, dict[str, str] | None]] = []

    def pages(self, resource_type: str, params: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the only page of a search, filtered by `_id` or `_lastUpdated` if that is asked for."""
        self.asked.append((resource_type, params))
        ids = params["_id"].split(",") if params and "_id" in params else None
        since = params.get("_lastUpdated", "ge")[2:] if params else ""
        of_type = (each for each in self.resources if each["resourceType"] == resource_type)
        found = (each for each in of_type if each.get("meta", {}).get("lastUpdated", since) >= since)
        entry = [{"resource": each} for each in found if ids is None or each["id"] in ids]
        yield {"resourceType": "Bundle", "type": "searchset", "total": len(entry), "entry": entry}


def publish_last_target(home: Path, ledger: Ledger) -> Publication | None:
    """Publish the ledger's rows of the target of its last batch. The target has no reports."""
    targets = [row["target"] for row in ledger.batches()]
    return publish(home, ledger, sweep(Target([]), home, targets[-1])) if targets else None


class World:
    """A home with a ledger, and a clock that advances a minute each time it is read."""

    def __init__(self, home: Path) -> None:
        self.home, self.time, self.reports = home, START, list(REPORTS)
        self.questionnaires: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []
        self.responses: list[dict[str, Any]] = []
        self.is_dated = False
        self.names: dict[str, str] = {}
        self.ledger = Ledger.open(home / "ledger.db", self.clock)

    def clock(self) -> datetime:
        self.time += timedelta(minutes=1)
        return self.time

    def publish(self) -> Publication:
        self.published = publish(self.home, self.ledger, self.read())
        return self.published

    def read(self) -> Sweep:
        """Read from the target what a publication needs."""
        target = Target([*self.reports, *self.questionnaires, *self.results, *self.responses])
        swept = sweep(target, self.home, TARGET, self.clock)
        if self.results:
            sweep_results(target, self.home, TARGET, self.clock)
        if self.questionnaires:
            sweep(target, self.home, TARGET, self.clock, resource_type="Questionnaire")
        if self.responses:
            sweep_changes(target, self.home, TARGET, "QuestionnaireResponse", self.is_dated, clock=self.clock)
        self.asked = target.asked
        if self.names:
            keep_names(self.home, TARGET, self.names)
        return swept

    def begin(self, batch: str, target: str = TARGET, of: tuple[str, str] = OF) -> None:
        """Begin a batch, so that its records can be sent."""
        feed = batch.partition("-")[0]
        about = {"feed": feed, "source": of[0], "resource_type": of[1], "file_name": f"{feed}.csv"}
        self.ledger.start_batch(target, batch, **about)

    def run(self, batch: str, counts: dict[str, int], target: str = TARGET, of: tuple[str, str] = OF) -> None:
        """Begin a batch if it is new. Begin and end a run of it; the first run also ends the batch."""
        state, new = "finished", not self.ledger.runs(target, batch)
        self.begin(batch, target, of)
        run = self.ledger.start_run(target, batch, feed_hash="f1", rules_version="1")
        self.ledger.finish_run(target, batch, run, state=state, counts=counts)
        if new:
            self.ledger.finish_batch(target, batch, state, counts)

    @contextmanager
    def tables(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open the published tables; yield a connection. A test with many queries opens them once."""
        with duckdb.connect(self.home / "published" / "reports.duckdb", read_only=True) as db:
            db.execute("SET TimeZone = 'UTC'")
            yield db

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.tables() as db:
            return db.execute(query).fetchall()


class Unpublished(World):
    """A world whose tables are made in memory. Writing files takes a quarter of a publication."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.until = ExitStack()

    def publish(self) -> Publication:
        """Make the tables in memory."""
        swept, at = self.read(), self.clock()
        self.close_tables()
        self.db = self.until.enter_context(session(self.home / ".spill"))
        (self.home / "published").mkdir(exist_ok=True)
        with being_built(self.home / "published"):  # for its errors
            tables = make_tables(self.db, self.ledger, swept, utc_text(at), self.home, settings_of(self.home))
        self.uncommented = tables
        rows = {each.name: count(self.db, f'SELECT count(*) FROM "{each.name}"') for each in tables}
        remarks = [f"{each.name}: {remark}" for each in tables for remark in each.remarks]
        self.published = Publication(Path(), Path(), at, TARGET, rows, remarks)
        return self.published

    @contextmanager
    def tables(self) -> Iterator[duckdb.DuckDBPyConnection]:
        yield self.db

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        if "comment" in query:
            for table in self.uncommented:
                comment(self.db, table)
            self.uncommented = []
        return super().rows(query)

    def close_tables(self) -> None:
        """Remove all tables from an instance that tests share, so that others do not list them."""
        if hasattr(self, "db"):
            [(own,)] = self.db.execute("SELECT current_database()").fetchall()
            self.db.execute(f"USE memory; DETACH {own}")
        self.until.close()


@contextmanager
def unpublished(home: Path) -> Iterator[Unpublished]:
    made = Unpublished(home)
    yield made
    made.close_tables()
    made.ledger.close()


def payment(key: str, line: int, cents: int, patient: str = "p1", batch: str = BATCH, day: int = 1) -> Intent:
    return Intent(key, 1, batch, line, f"h-{key}", "f1", patient, utc_text(datetime(2026, 2, day, tzinfo=UTC)), cents)


def import_payments(world: World) -> None:
    """Import two batches: six payments of every outcome and a reject; then a file that repeats one and corrects two."""
    ledger, paid = world.ledger, utc_text(datetime(2026, 2, 1, tzinfo=UTC))
    six = [payment(f"k{n}", n, 1000 + n, "p2" if n == 6 else "p1", day=2 if n == 7 else 1) for n in range(2, 8)]
    world.begin(BATCH)
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, six)
        fates: list[tuple[str, str | None, int | None]] = [
            ("created", "id-2", 201),
            ("adopted", "id-3", 200),
            ("refused", None, 422),
        ]
        fates += [("in_doubt", None, None), ("created", "id-6", 201), ("refused", None, 422)]
        ledger.settle(TARGET, *OF, [Outcome(i.key, 1, *fate) for i, fate in zip(six, fates, strict=True)])
        refusal = [Reason("PAY-9", "PaymentNotice.amount", None, "Unprocessable entity", True)]
        bad = [Reason("PAY-2", "PaymentNotice.amount.value", "amount", "more than two decimals", False)]
        bad.append(Reason("FEED-1", None, "paid_on", "not a date", False))
        rejects = [
            Reject(i.line, 1, i.key, "load", i.patient_id, i.source_at, i.amount_cents, refusal)
            for i in (six[2], six[5])
        ]
        rejects.append(Reject(8, 1, "k8", "rule", "p1", paid, 500, bad))
        ledger.reject(TARGET, *OF, BATCH, rejects)
        counts = {"header": 1, "lines": 9, "not_taken": 1, "records": 7, "accepted": 6, "rejected": 1, "created": 2}
        counts |= {"adopted": 1, "refused": 2, "in_doubt": 1, "amount_received": 6527 + 500, "amount_accepted": 6527}
        world.run(BATCH, counts | {"amount_created": 1002 + 1006})

        second = "payments-ffffffffffff"
        world.begin(second)
        ledger.note_repeats(TARGET, *OF, second, [Repeat(2, "k2", "unchanged", "id-2", "p1", paid, 1002)])
        ledger.intend_again(lease, *OF, [payment("k4", 3, 904, batch=second)])
        ledger.intend(lease, *OF, [payment("k8", 4, 490, batch=second)])
        ledger.settle(TARGET, *OF, [Outcome("k4", 1, "created", "id-4", 201), Outcome("k8", 1, "created", "id-8", 201)])
        close_rejects(ledger, TARGET, ["k2", "k4", "k8"], second)
        counts = {"header": 1, "lines": 4, "records": 3, "accepted": 3, "created": 2, "unchanged": 1}
        world.run(second, counts | {"amount_received": 2396, "amount_accepted": 2396, "amount_created": 1394})


def carry_over(
    world: World,
    resource: str,
    records: dict[str, tuple[datetime | None, dict[str, Any]]],
    number: str = "0123456789ab",
) -> str:
    """Add a finished batch whose records were all created. records: key, time and body of each."""
    kind, of = "tasks" if resource == "Task" else "answers", ("default", resource)
    batch = f"{kind}-{number}"
    lines = dict(enumerate(records, 2))
    times = {key: utc_text(at) if at else None for key, (at, _) in records.items()}
    intents = [Intent(key, 1, batch, line, f"h-{key}", "f1", "p1", times[key], None) for line, key in lines.items()]
    world.begin(batch, of=of)
    with world.ledger.lease(TARGET) as lease:
        world.ledger.intend(lease, *of, intents)
        world.ledger.settle(TARGET, *of, [Outcome(key, 1, "created", f"id-{key}", 201) for key in records])
    world.run(batch, dict.fromkeys(("lines", "records", "accepted", "created"), len(records)), of=of)
    folder = world.home / "batches" / batch / "run-1"
    folder.mkdir(parents=True)
    bodies = [orjson.dumps({"resourceType": resource} | body).decode() for _, body in records.values()]
    made = zip(lines.items(), bodies, strict=True)
    write_accepted(folder, {line: (key, f"h-{key}", body) for (line, key), body in made})
    return batch


def write_accepted(folder: Path, rows: Mapping[int, tuple[str, str, str]]) -> None:
    """Write the accepted rows of a run: line, key, content hash and body of each."""
    about = {"patient_id": "p1", "source_at": START, "amount_cents": 100}
    made = [
        {"line": line, "key": key, "content_hash": h, "body": body} | about for line, (key, h, body) in rows.items()
    ]
    pq.write_table(pa.Table.from_pylist(made), folder / "accepted.parquet")


def words_of(home: Path, figure: str) -> str:
    """Return the text of a figure on the page."""
    page = (home / "published" / "report.html").read_text(encoding="utf-8")
    shown = page.partition(f'id="{figure}"')[2].partition("</section>")[0]
    return " ".join(re.sub("<[^>]*>", " ", shown).split())
