"""The load stage: accepted records through the ledger to the target, each in exactly one known state at the end.

How rows travel is in `sending.py` (bundles) and `lanes.py` (one request a row); what is known of them is kept here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.answers import Answers
from pipelines.client import Capabilities, FhirClient
from pipelines.feeds.catalog import Feed
from pipelines.lanes import send_by_lanes
from pipelines.lease import Lease
from pipelines.ledger import Ledger
from pipelines.ledger_rejects import resubmit
from pipelines.ledger_rows import Intent, KnownRecord, Outcome, Reason, Reject, Repeat
from pipelines.ledger_tables import LANDED
from pipelines.progress import Progress
from pipelines.sending import BundleSender, Identity, Result, Row, Sent

ROWS_A_LOOK = 2_000
ROWS_A_BUNDLE = 500
CHARACTERS_A_BUNDLE = 8_000_000
KEYS_A_CLOSING = 20_000
READERS = 8
ACCEPTED = "line lines key lane content_hash patient_id source_at amount_cents body".split()
SKIPPED = "line key patient_id source_at amount_cents".split()

UNDECIDED = ("planned", "sending", "in_doubt")
SURELY_NOT_THERE = ("planned", "refused")


@dataclass(frozen=True)
class Batch:
    """One run of a batch. folder: `run-<n>/`, where the stages hand over. resuming: it has not finished before."""

    target: str
    batch_id: str
    feed: Feed
    folder: Path
    resuming: bool


@dataclass
class Loaded:
    """What a load came to: rows by state (`rejected`: other content under a known key) and the same in cents.

    `reasons`: how often a rule or an outcome's code set a row aside.
    `unusable` says why the load ended early; rows without an outcome are then left for the next run.
    """

    counts: Counter[str] = field(default_factory=Counter)
    cents: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    unusable: str | None = None

    def add(self, state: str, amount_cents: int | None) -> None:
        self.counts[state] += 1
        self.cents[state] += amount_cents or 0


def load(
    batch: Batch, client: FhirClient, capabilities: Capabilities, ledger: Ledger, lease: Lease, progress: Progress
) -> Loaded:
    """Sends what `accepted.parquet` holds and the ledger does not know as done. Raises `LedgerError`."""
    safe = capabilities.safe_batches(batch.feed.resource)
    book = Book(batch, ledger, lease, progress, safe)
    book.note_answers()
    book.note_skipped()
    if safe:
        _send_bundles(book, client)
    else:
        book.loaded.unusable = send_by_lanes(book, client)
    book.close_answered(book.answers.done())
    return book.loaded


class Book:
    """The ledger's side of one load: what each row is to the ledger, its intent, its result, and the counts."""

    def __init__(self, batch: Batch, ledger: Ledger, lease: Lease, progress: Progress, safe: bool) -> None:
        self.batch, self.ledger, self.lease, self.progress, self.safe = batch, ledger, lease, progress, safe
        self.source, self.resource = batch.feed.source, batch.feed.resource
        self.loaded = Loaded()
        self.stopped: set[str] = set()
        self.answers = Answers.of(batch.folder)
        self._landed: list[str] = []

    # -- before sending

    def rows_to_send(self) -> Iterator[Row]:
        """The accepted rows that are to be sent, in order; what the ledger knows of the others is noted on the way."""
        for rows in accepted_rows(self.batch.folder / "accepted.parquet", self.ledger.now()):
            yield from self._to_send(rows)

    def _to_send(self, rows: list[Row]) -> list[Row]:
        known = self.ledger.known(self.batch.target, self.source, self.resource, [row.key for row in rows])
        if not known:
            return rows
        sending: list[Row] = []
        repeats: list[Repeat] = []
        changed: list[Row] = []
        for row in rows:
            record = known.get(row.key)
            match self._verdict(row, record):
                case "send" if record is None:
                    sending.append(row)
                case "send" if record is not None:
                    sending.append(self._again(row, record))
                case "changed":
                    changed.append(row)
                case state if record is not None:
                    self._keep(row, state)
                    if state not in UNDECIDED and not self._own(row, record):
                        repeats.append(_repeat(row, state, record.resource_id))
        self._note(repeats)
        self._reject_changed(changed)
        return sending

    def _verdict(self, row: Row, record: KnownRecord | None) -> str:
        """`send`, `changed`, or the state that the row has without being sent."""
        if record is None or record.state in SURELY_NOT_THERE:
            return "send"
        if record.content_hash != row.content_hash:
            return "skipped" if record.state in LANDED and self.batch.feed.changed == "skip" else "changed"
        if record.state in LANDED:
            return "unchanged"
        return "send" if self.safe else "in_doubt"

    def _own(self, row: Row, record: KnownRecord) -> bool:
        return record.batch_id == self.batch.batch_id and record.line == row.line

    def _again(self, row: Row, record: KnownRecord) -> Row:
        """A known record as a row to send: with its generation and its first moment."""
        doubtful = record.state not in SURELY_NOT_THERE
        stays = doubtful or record.state == "planned"
        return row._replace(
            generation=record.generation,
            first_attempt_at=record.first_attempt_at or row.first_attempt_at,
            known=True,
            intended=doubtful,
            elsewhere=stays and not self._own(row, record),
        )

    def _keep(self, row: Row, state: str) -> None:
        self.loaded.add(state, row.amount_cents)
        self.progress.advance(1)
        if state == "in_doubt":
            self.stopped.add(row.lane)
        if state in LANDED:
            self.answers.landed(row.line)
            if self.batch.resuming:
                self._landed.append(row.key)
                self._close_in_parts()

    def _reject_changed(self, rows: list[Row]) -> None:
        reason = Reason("LEDGER-08", None, None, "the key is known with other content", False)
        for row in rows:
            self.loaded.add("rejected", row.amount_cents)
        self._reject([self._rejected(row, "rule", reason) for row in rows])
        self.progress.advance(len(rows))

    def note_answers(self) -> None:
        """Writes down that records of this load are on their way to answer rejects."""
        if answers := self.answers.to_come():
            of = (self.batch.target, self.source, self.resource, self.batch.batch_id)
            resubmit(self.ledger, *of, answers)

    def note_skipped(self) -> None:
        """Equal repeats within the file: they count once, and say which line they repeat."""
        path = self.batch.folder / "skipped.parquet"
        if path.exists():
            for part in pq.ParquetFile(path).iter_batches(ROWS_A_LOOK, columns=SKIPPED):
                line, key, patient_id, _, cents = (part.column(name).to_pylist() for name in SKIPPED)
                at = _utc_texts(part.column("source_at"))
                rows = zip(line, key, patient_id, at, cents, strict=True)
                self._note([Repeat(line, key, "skipped", None, *rest) for line, key, *rest in rows])
                for amount in cents:
                    self.loaded.add("skipped", amount)

    # -- around sending

    def intend(self, rows: Sequence[Row]) -> None:
        """Commits that these rows are being sent. Raises `LeaseLost`."""
        new = [self._intent(row) for row in rows if not row.known]
        known = [self._intent(row) for row in rows if row.known]
        if new:
            self.ledger.intend(self.lease, self.source, self.resource, new)
        if known:
            self.ledger.intend_again(self.lease, self.source, self.resource, known)

    def hold_back(self, rows: Iterable[Row]) -> None:
        """Takes intents back: these rows were not sent in this run, and keep what was known of them before."""
        self.settle([(row, Result("in_doubt" if row.intended else "planned")) for row in rows])

    def settle(self, results: Sequence[tuple[Row, Result]]) -> None:
        """Writes down what came of rows, sets the refused ones aside, and counts."""
        if not results:
            return
        self.ledger.settle(
            self.batch.target,
            self.source,
            self.resource,
            [Outcome(row.key, row.generation, r.state, r.resource_id, r.status) for row, r in results],
        )
        self._reject([self._rejected(row, "load", _reason(r)) for row, r in results if r.state == "refused"])
        known_now = [(row, r) for row, r in results if row.elsewhere and r.state not in UNDECIDED]
        self._note([_repeat(row, _elsewhere(r.state), r.resource_id) for row, r in known_now])
        for row, result in results:
            self.loaded.add(result.state, row.amount_cents)
            if result.state == "in_doubt":
                self.stopped.add(row.lane)
            elif result.state in LANDED:
                self._landed.append(row.key)
                self.answers.landed(row.line)
        self.progress.advance(len(results))
        self._close_in_parts()

    def _close_in_parts(self) -> None:
        if len(self._landed) >= KEYS_A_CLOSING:
            self.close_answered()

    def close_answered(self, ids: Collection[str] = ()) -> None:
        """Closes the rejects that rows of this load have answered: by key, and those of these ids."""
        if self._landed or ids:
            target, batch_id = self.batch.target, self.batch.batch_id
            self.ledger.close_rejects(target, self.source, self.resource, self._landed, batch_id=batch_id, ids=ids)
            self._landed = []

    def _intent(self, row: Row) -> Intent:
        return Intent(
            row.key,
            row.generation,
            self.batch.batch_id,
            row.line,
            row.content_hash,
            self.batch.feed.hash,
            row.patient_id,
            row.source_at,
            row.amount_cents,
        )

    def _rejected(self, row: Row, stage: str, reason: Reason) -> Reject:
        self.answers.still_wrong(row.line)
        about = (row.patient_id, row.source_at, row.amount_cents)
        return Reject(row.line, row.lines, row.key, stage, *about, [reason], self.answers.of_line(row.line))

    def _note(self, repeats: list[Repeat]) -> None:
        if repeats:
            self.ledger.note_repeats(self.batch.target, self.source, self.resource, self.batch.batch_id, repeats)

    def _reject(self, rejects: list[Reject]) -> None:
        if rejects:
            self.loaded.reasons.update(reason.rule_id for reject in rejects for reason in reject.reasons)
            self.ledger.reject(self.batch.target, self.source, self.resource, self.batch.batch_id, rejects)


def _send_bundles(book: Book, client: FhirClient) -> None:
    """One bundle under way, while the next is encoded and intended and the one before is written down."""
    with ThreadPoolExecutor(1, "bundle") as line, ThreadPoolExecutor(READERS, "read back") as readers:
        sender = BundleSender(client, Identity(book.source, book.resource), readers.map)
        under_way: tuple[list[Row], Future[Sent]] | None = None
        intended: list[Row] = []
        try:
            for bundle in bundles(book.rows_to_send()):
                book.intend(bundle)
                intended = bundle
                before, under_way = under_way, None
                sent = before[1].result() if before else Sent()
                stopped = _lanes_in_doubt(before[0], sent) if before else set()
                if not sent.unusable:
                    intended = [row for row in bundle if row.lane not in stopped]
                    under_way = (intended, line.submit(sender.send, intended))
                    intended = [row for row in bundle if row.lane in stopped]
                if before:
                    _settle(book, before[0], sent)
                book.hold_back(intended)
                intended = []
                if sent.unusable:
                    return
        finally:
            if under_way:
                _settle(book, under_way[0], under_way[1].result())
            book.hold_back(intended)


def _settle(book: Book, rows: Sequence[Row], sent: Sent) -> None:
    book.loaded.unusable = book.loaded.unusable or sent.unusable
    book.settle([(row, sent.results[at]) for at, row in enumerate(rows)])


def _lanes_in_doubt(rows: Sequence[Row], sent: Sent) -> set[str]:
    return {rows[at].lane for at, result in sent.results.items() if result.state == "in_doubt"}


def bundles(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in bundles, bounded in number and in size."""
    bundle: list[Row] = []
    size = 0
    for row in rows:
        if len(bundle) == ROWS_A_BUNDLE or (bundle and size + len(row.body) > CHARACTERS_A_BUNDLE):
            yield bundle
            bundle, size = [], 0
        bundle.append(row)
        size += len(row.body)
    if bundle:
        yield bundle


def accepted_rows(path: Path, now: str) -> Iterator[list[Row]]:
    """The rows of `accepted.parquet` as the validate stage ordered them, some at a time. `now`: UTC text."""
    for part in pq.ParquetFile(path).iter_batches(ROWS_A_LOOK, columns=ACCEPTED):
        columns = {name: part.column(name) for name in ACCEPTED}
        at = _utc_texts(columns["source_at"])
        line, lines, key, lane, content_hash, patient_id, _, cents, body = (c.to_pylist() for c in columns.values())
        yield [
            Row._make((*row, now, 1, False, False, False))
            for row in zip(line, lines, key, lane, content_hash, patient_id, at, cents, body, strict=True)
        ]


def _utc_texts(column: pa.Array) -> list[str | None]:
    """Timestamps as the ledger's text of fixed width."""
    texts = pc.cast(pc.cast(column, pa.timestamp("us", "UTC")), pa.string())
    return pc.replace_substring(texts, " ", "T").to_pylist()  # type: ignore[no-any-return]


def _repeat(row: Row, state: str, resource_id: str | None) -> Repeat:
    return Repeat(row.line, row.key, state, resource_id, row.patient_id, row.source_at, row.amount_cents)


def _elsewhere(state: str) -> str:
    """What a row is whose record stands in another batch, once that record has this state."""
    return "unchanged" if state in LANDED else state


def _reason(result: Result) -> Reason:
    """A refusal in the target's own words: its code as the rule, its text and diagnostics as the sentence."""
    issue = result.outcome or {}
    words = [str(issue[name]) for name in ("text", "diagnostics") if issue.get(name)]
    expression = issue.get("expression")
    return Reason(
        str(issue.get("code") or f"HTTP-{result.status}"),
        str(expression) if expression else None,
        None,
        ": ".join(words) or f"the target refused it (HTTP {result.status})",
        result.status == 422,
    )
