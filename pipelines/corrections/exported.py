"""The result of an export of rejects: its files, and what could not be exported."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipelines.home.counted import counted


@dataclass(frozen=True)
class Left:
    """Open rejects of a batch for which nothing could be done, and why."""

    batch_id: str
    rejects: int
    why: str

    def line(self, what: str) -> str:
        return f"{self.batch_id}: {counted(self.rejects, 'reject')} {what}: {self.why}"


def of_batch(batch_id: str | None) -> str:
    """Return words that say of which batch rejects were asked for; none where it was of all."""
    return f" of {batch_id}" if batch_id else ""


@dataclass
class Exported:
    """Files, and how many rejects each holds. left: what could not be exported. of: the batch that was asked for."""

    files: dict[Path, int] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    of: str | None = None

    def as_json(self) -> dict[str, Any]:
        files = [{"file": str(path), "rejects": number} for path, number in self.files.items()]
        return {"files": files, "left": [asdict(each) for each in self.left]}

    def lines(self) -> Iterator[str]:
        if not self.files and not self.left:
            yield f"no open rejects{of_batch(self.of)}"
        for path, number in self.files.items():
            yield f"{path}: {counted(number, 'reject')}"
        if self.files:
            yield "correct the rows and put the files into the inbox, under any name: _reject_id says what they answer"
        yield from (each.line("cannot be exported") for each in self.left)
