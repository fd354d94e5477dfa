"""Which records of a file are checked, and which rejects they answer."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.feeds.terms.record import Kind
from pipelines.home import arrow


class Wanted:
    """The records of a file that are checked, and the rejects that they answer.

    answers: by line, the rejects that rows say they answer. only: the lines that the wanted records begin on, each with
    the rejects that it answers; None for all records. lines: the number of lines of the wanted records.
    """

    def __init__(self, answers: Mapping[int, str], only: Mapping[int, Sequence[str]] | None = None) -> None:
        self.answers, self.only = answers, only
        self.answered: dict[tuple[int, str], None] = {}
        self.lines = 0

    def of(self, chunk: pa.RecordBatch, kind: Kind) -> pa.RecordBatch:
        """The rows of a chunk that are wanted; what they answer is noted."""
        if self.only is None and not self.answers:
            return chunk
        line, begin = (chunk.column(name) for name in ("line", "first_line" if kind.grouped else "line"))
        if self.only is not None:
            chunk = chunk.filter(pc.is_in(begin, arrow.column([*self.only], pa.int64())))
            self.lines += pc.sum(chunk.column("lines")).as_py() or 0
            begins = chunk.column("first_line" if kind.grouped else "line").to_pylist()
            self.answered.update(((first, name), None) for first in begins for name in self.only[first])
        else:
            rows = zip(line.to_pylist(), begin.to_pylist(), strict=True)
            names = ((first, name) for row, first in rows for name in self.answers.get(row, "").split())
            self.answered.update(dict.fromkeys(names))
        return chunk
