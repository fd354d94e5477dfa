"""Rejects that the rows of a load answer: they are closed once the records of these rows have landed."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from pipelines.ledger.rejects import note_answers, resubmit
from pipelines.loading.load import Load
from pipelines.loading.row import Row
from pipelines.session.answers import Answers

KEYS_A_CLOSING = 20_000


class Closing:
    """The rejects that one load closes.

    answers: what its rows answer by name. Keys that have landed, and contents that are there by key, close what is open
    of them; they are gathered, and written some at a time.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self.answers = Answers.of(load.batch.folder)
        self._landed: list[str] = []
        self._there: dict[str, str] = {}

    def note_to_come(self) -> None:
        """Write down that records of this load are on their way to answer rejects."""
        about = (self._load.ledger, *self._load.of, self._load.batch.batch_id)
        if answers := self.answers.to_come():
            resubmit(*about, answers)
        if answers := self.answers.to_come(beside_wrong=True):
            note_answers(*about, answers)

    def landed(self, row: Row) -> None:
        """Note that a row's record is at the target."""
        self._landed.append(row.key)
        if self.answers:
            self.answers.landed(row.line)

    def are_there(self, contents: Mapping[str, str]) -> None:
        """Note by key that the target has records with these content hashes, which earlier runs have sent."""
        self._there.update(contents)

    @contextmanager
    def or_as_before(self) -> Iterator[None]:
        """Forget what the block notes to have landed if it raises."""
        landed, so_many = self._landed, len(self._landed)
        try:
            yield
        except BaseException:
            self._landed = landed[:so_many]
            raise

    def write_if_many(self) -> None:
        if len(self._landed) + len(self._there) >= KEYS_A_CLOSING:
            self.write()

    def write(self, ids: Collection[str] = ()) -> None:
        """Close the rejects that rows of this load have answered: by key, and those of these ids."""
        if self._landed or self._there or ids:
            ledger, of, batch_id = self._load.ledger, self._load.of, self._load.batch.batch_id
            with ledger.transaction():
                keys, there = ledger.of_open_rejects(*of, self._landed, self._there)
                if keys or there or ids:
                    wrong = sorted(self.answers.told()[1])
                    ledger.close_rejects(*of, keys, batch_id=batch_id, ids=ids, there=there, but=wrong)
            self._landed, self._there = [], {}
