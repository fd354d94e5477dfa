"""Send the rows of a load to the target, in bundles or one by one, until no row is left that can be sent now."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from math import inf

from pipelines.client.pace import CircuitBreaker
from pipelines.client.steps import Step
from pipelines.loading.book import Book
from pipelines.loading.intake import Intake
from pipelines.loading.lookup import BY_ITSELF, PatientLookups
from pipelines.loading.lookup_before_sending import Ask, Asker, unless_found
from pipelines.loading.posting import prove_first_rows, sender
from pipelines.loading.refusal_reasons import RefusalReasons
from pipelines.loading.requests_under_way import UnderWay
from pipelines.loading.row import AcceptedRow

BUNDLES_AT_ONCE = 4
"""The number of bundles under way at once: the target reads some while it stores others, and may store two as one."""
READERS = 8
SPARE = 8
"""Rows whose intents are written ahead if they are sent one by one."""
LATE_SECONDS = 2.0
"""Seconds after which a request without an answer is looked up once more, before its run ends."""


class Carrier:
    """Sender of the rows of one load, at the step that its target has been found to keep.

    Circuit and look-ups of patients are shared by all its rows.
    """

    def __init__(self, book: Book, intake: Intake) -> None:
        self._book, self._intake = book, intake
        self._why, self._circuit = RefusalReasons(book.load), CircuitBreaker()
        self._looks = PatientLookups(book.load.client, book.load.resource, book.load.ledger.clock)

    def send(self) -> None:
        """Send rows in doubt from before, then the other rows, then rows that new doubts held up."""
        book, promised, rows = self._book, self._book.load.step, self._intake.rows_to_send()
        if promised.conditional and not promised.repeats and not book.notes:
            prove_first_rows(book, rows, self._why)
        if not book.loaded.unusable:
            self._carry(rows)
        self._intake.write_unchanged()
        self.go_on()

    def go_on(self) -> None:
        """Settle new doubts; send the rows that they held up, and payments that waited for answers to others."""
        while self._has_more():
            self._carry(self._intake.rows_to_send())

    def _carry(self, rows: Iterator[AcceptedRow]) -> None:
        """Send rows at the book's present step."""
        book, step, batch = self._book, self._book.step, self._book.load.batch
        rows = rows if step == book.load.step else self._without_a_person(rows)
        at_once = max(1, BUNDLES_AT_ONCE // batch.workers) if step.bundle else batch.pace.at_once
        most = book.load.client.profile.most_rows if step.bundle else 1
        spare = spare_of(step, book.load.resource, at_once)
        circuit, looks = CircuitBreaker(inf) if step.bundle else self._circuit, None if step.named else self._looks
        with ThreadPoolExecutor(max(READERS, at_once), "read back") as readers:
            send = sender(book, self._why, readers.map)
            send = book.notes.sending(send, readers.map) if book.notes else send
            send, ask = (unless_found(send), self._ask) if step.named and not step.conditional else (send, None)
            UnderWay(book, send, at_once, spare, most, circuit, looks, ask).carry(rows)

    @cached_property
    def _ask(self) -> Ask:
        return Asker(self._book.load).ask

    def _has_more(self) -> bool:
        """True if more rows can be sent: those held up by new doubts, once these are settled, and waiting payments."""
        book, intake = self._book, self._intake
        if book.loaded.unusable:
            return False
        if intake.has_payments_again():
            return True
        if book.load.batch.part or book.step.repeats or not book.loaded.counts["in_doubt"]:
            return False  # doubts of a part are settled together with those of the other parts
        if intake.settle_doubts_again():
            return True
        book.load.client.patience.wait(LATE_SECONDS)
        return intake.settle_doubts_again()

    def _without_a_person(self, rows: Iterator[AcceptedRow]) -> Iterator[AcceptedRow]:
        """Yield the rows without payments in doubt: a target that ignores conditions would make these twice."""
        book = self._book
        for row in rows:
            if row.intended and not book.step.conditional and book.load.resource not in BY_ITSELF:
                book.keep(row, "in_doubt")
            else:
                yield row


def spare_of(step: Step, resource_type: str, at_once: int) -> int:
    """Return how many units have their intents written ahead. A kill leaves these in doubt, so there are none for
    types whose doubts need a person.
    """
    if step.bundle:
        return at_once
    return SPARE if resource_type in BY_ITSELF else 0
