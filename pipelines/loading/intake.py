"""Read the accepted rows of a batch, and judge each: it is sent, kept as known, updated, set aside, or waits.

`unchanged.py` notes rows that are unchanged by comparing whole pages, so they are not judged here. `book.py` writes
the judged rows; `requests_under_way.py` sends them.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from pyarrow import RecordBatch

from pipelines.ledger.rows import KnownRecord, Reason, Repeat
from pipelines.ledger.states import UNDECIDED
from pipelines.loading.accepted import accepted_files, accepted_pages, as_rows
from pipelines.loading.balances import ABOVE, Balances, BalancesUnknown
from pipelines.loading.book import Book
from pipelines.loading.held_lanes import HeldLanes
from pipelines.loading.judging import JudgedRow, RowJudge
from pipelines.loading.policies import update_tasks
from pipelines.loading.repeats import as_repeat
from pipelines.loading.row import AcceptedRow
from pipelines.loading.settling import SettledRows, settle_doubts
from pipelines.loading.unchanged import LeftOfPage, UnchangedRows

NOT_KEPT = ("sent", "update", "aside", "waits")
"""Verdicts on rows whose records do not stay as the ledger knows them."""


class Intake:
    """The rows of one load, between the file and their verdicts.

    second_look: lanes whose rows are judged once more, since the doubt that held them up is settled. released:
    payments that waited for the answers to others, and are to be sent now.
    """

    def __init__(self, book: Book) -> None:
        load = book.load
        self._book, self._load, self._batch = book, load, load.batch
        self._judge = RowJudge(load.batch, load.ledger, book.step.repeats, book.answers, load.references.reasons)
        self._unchanged = UnchangedRows(book)
        self._held: HeldLanes | None = None
        of_payments = load.batch.balances and load.resource == "PaymentNotice"
        about = (load.client, load.ledger, load.batch.target, load.identity.system)
        self._balances = Balances(*about) if of_payments else None
        if self._balances:
            book.when_answered = self._balances.answered
        self._second_look: set[str] | None = None
        self._released: list[AcceptedRow] = []

    def rows_to_send(self) -> Iterator[AcceptedRow]:
        """Yield the accepted rows that are to be sent, in order; write the verdicts on all others."""
        if self._released:
            yield from self._taken_released()
            return
        now = self._load.ledger.now()
        for page in accepted_pages(self._batch.folder / "accepted.parquet", self._batch.part):
            left = self._left(page)
            yield from self._to_send(as_rows(left.page, now), left.known)
            if self._second_look is None:  # in a second look, a waiting row of a later page would come twice
                self._release()
                yield from self._taken_released()
            if self._book.is_ending():
                return

    def write_unchanged(self) -> None:
        """Count and write the rows found unchanged that are not written yet."""
        self._unchanged.write()

    def _left(self, page: RecordBatch) -> LeftOfPage:
        """Return the rows of a page that are judged one by one; note those that are plainly unchanged."""
        if self._second_look is None:
            return self._unchanged.note(page, self._others_hold().lanes)
        return LeftOfPage(page, set(page.column("key").to_pylist()))

    def _to_send(self, rows: list[AcceptedRow], keys: Collection[str]) -> list[AcceptedRow]:
        """Return the rows that are to be sent. keys: includes all keys of these rows that the ledger may know."""
        known = self._load.ledger.known(*self._load.of, [row.key for row in rows if row.key in keys])
        rows = self._not_held(rows, known)
        if self._second_look is not None:
            return self._of_second_look(rows, known, self._second_look)
        judged = list(self._within_balances(list(self._judge.judge(rows, known))))
        sending = [each.row for each in judged if each.verdict == "sent"]
        if len(sending) == len(rows) or self._book.loaded.unusable:
            return sending
        aside = [(each.row, each.reason) for each in judged if each.reason]
        waiting = sum(each.verdict == "waits" for each in judged)
        updates = [(each.row, each.record) for each in judged if each.verdict == "update" and each.record]
        kept = [each for each in judged if each.verdict not in NOT_KEPT]
        repeats = [repeat for each in kept for repeat in self._kept(each)]
        self._book.write_known(repeats, aside, (each.row.line for each in kept if each.verdict not in UNDECIDED))
        self._load.progress.advance(len(rows) - len(sending) - len(updates) - len(aside) - waiting)
        update_tasks(self._book, updates)
        return sending

    def _within_balances(self, judged: list[JudgedRow]) -> list[JudgedRow]:
        """Set aside payments above the balance, or let them wait, if the target keeps no balances."""
        sending = [each.row for each in judged if each.verdict == "sent"]
        try:
            found = self._balances.judge(sending) if self._balances else {}
        except BalancesUnknown as error:
            self._book.loaded.unusable = f"the target could not be used: {error}"
            return []
        return [_not_sent(each, found[each.row.key]) if each.row.key in found else each for each in judged]

    def has_payments_again(self) -> bool:
        """True if waiting payments can be sent now."""
        self._release()
        return bool(self._released)

    def _release(self) -> None:
        """Take the waiting payments whose turn has come; set aside those above the balance."""
        if self._balances and self._balances.waiting:
            sending, above = self._balances.released()
            self._released += sending
            if above:
                self._book.write_known([], [(row, ABOVE) for row in above])

    def _taken_released(self) -> list[AcceptedRow]:
        released, self._released = self._released, []
        return released

    def _not_held(self, rows: list[AcceptedRow], known: dict[str, KnownRecord]) -> list[AcceptedRow]:
        """Return the rows that wait for no other batch. The others are not judged, and stay without an outcome."""
        held = self._others_hold()
        if not held:
            return rows
        free = list[AcceptedRow]()
        for row in rows:
            if holder := held.holder(row, known.get(row.key)):
                self._book.loaded.waits_for.add(holder)
            else:
                free.append(row)
        return free

    def _others_hold(self) -> HeldLanes:
        if self._held is None:
            self._held = HeldLanes(self._batch, self._load.ledger, self._book.step.repeats)
        return self._held

    def _of_second_look(
        self, rows: list[AcceptedRow], known: dict[str, KnownRecord], lanes: set[str]
    ) -> list[AcceptedRow]:
        """Return the rows that were held up by a doubt that is settled now. All other rows have been counted.

        In a load in parts, payments that another process has judged are checked against the balance once more.
        """
        decided = self._book.refused | (self._balances.waiting if self._balances else set())
        held_up = [row for row in rows if row.lane in lanes and row.key not in decided]
        sent = [each for each in self._judge.judge(held_up, known) if each.verdict == "sent"]
        taken = self._balances.taken if self._balances else {each.row.key for each in sent}
        after = {each.row.key: each for each in self._within_balances([e for e in sent if e.row.key not in taken])}
        if self._book.loaded.unusable:
            return []
        judged = [after.get(each.row.key, each) for each in sent]
        if aside := [(each.row, each.reason) for each in judged if each.reason]:
            self._book.write_known([], aside)
        return [each.row for each in judged if each.verdict == "sent"]

    def _kept(self, judged: JudgedRow) -> Iterator[Repeat]:
        """Count a row that is not sent; yield its entry if the record is from another line."""
        row, record, state, _ = judged
        if state == "unchanged" and record and self._is_of_this_load(row, record):
            self._book.loaded.add(record.state, row.amount_cents)  # an earlier worker of this load has finished it
            return
        verdicts = self._judge.verdicts
        self._book.keep(row, state, state == "unchanged" and bool(record and verdicts.is_read_otherwise(row, record)))
        if record is None:
            return
        if state not in UNDECIDED and not verdicts.own(row, record):
            yield as_repeat(row, state, record.resource_id)

    def _is_of_this_load(self, row: AcceptedRow, record: KnownRecord) -> bool:
        """True if a worker that had this part before has made the record from this row."""
        since = self._batch.part.since if self._batch.part else ""
        return bool(since) and (record.finished_at or "") >= since and self._judge.verdicts.own(row, record)

    # -- rows in doubt

    def free(self, keys: Collection[str]) -> None:
        """Note the keys of rows in doubt that surely are not at the target, and so are sent again."""
        self._judge.verdicts.resend = set(keys)

    def settle_doubts_before(self) -> set[str]:
        """Look up rows that earlier runs left in doubt, as those runs read them; return the keys that may be sent
        again.

        If a create can be repeated at once, only rows are looked up that today's feed reads otherwise, or that were
        sent without their key. All other rows are simply sent again.
        """
        files = accepted_files(self._batch.folder.parent)
        settled = SettledRows()
        if not self._book.step.repeats:
            settled = self.settle_doubts(files)
        elif self._batch.resuming:
            settled = self.settle_doubts(files, self._batch.folder / "accepted.parquet")
        return {row.key for row in settled.resend}

    def settle_doubts(self, files: Sequence[Path] = (), apart_from: Path | None = None) -> SettledRows:
        """Look up this batch's rows in doubt, and adopt those found. Rows surely not there may be sent again."""
        target, source, resource = self._load.of
        settled = settle_doubts(
            self._load.ledger,
            self._load.client,
            target,
            (source, resource, self._batch.batch_id),
            files or [self._batch.folder / "accepted.parquet"],
            step=self._book.step,
            settling_seconds=self._batch.pace.settling_seconds,
            apart_from=apart_from,
        )
        self.free({row.key for row in settled.resend})
        return settled

    def settle_doubts_again(self) -> bool:
        """Look up doubts after rows were sent; return True if stopped lanes can continue, by a second look."""
        settled, book = self.settle_doubts(), self._book
        for row, state, _ in settled.adopted:
            book.adopted(row, state)
        self._second_look = {found.row.lane for found in settled.adopted} - {row.lane for row, _ in settled.left}
        book.stopped -= self._second_look
        return bool(self._second_look)


def _not_sent(judged: JudgedRow, reason: Reason | None) -> JudgedRow:
    """Return the verdict on a payment that is set aside for a reason, or waits."""
    return JudgedRow(judged.row, judged.record, "aside" if reason else "waits", reason)
