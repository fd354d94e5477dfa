"""Write the open rejects of a ledger in the form they came in, one file for each batch."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipelines.corrections.balances import with_balances
from pipelines.corrections.reject_file import write_rejects
from pipelines.corrections.sources import OutOfReach, lines_by_batch, source_of
from pipelines.feeds.files.catalog import Catalog
from pipelines.home.batch import UnreadableFile
from pipelines.home.counted import counted
from pipelines.home.scratch import throwaway_folder
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.reasons import reasons_now, still_wrong
from pipelines.ledger.rejects import exported_ids, reasons_of, reject_places


@dataclass(frozen=True)
class LeftRejects:
    """Open rejects of a batch for which nothing could be done, and the reason."""

    batch_id: str
    rejects: int
    why: str

    def line(self, what: str) -> str:
        return f"{self.batch_id}: {counted(self.rejects, 'reject')} {what}: {self.why}"


def of_batch(batch_id: str | None) -> str:
    """Return words that name the batch whose rejects were asked for; empty text for all batches."""
    return f" of {batch_id}" if batch_id else ""


@dataclass
class ExportResult:
    """Files, with the number of rejects in each. left: rejects that could not be exported. of: the batch asked for."""

    files: dict[Path, int] = field(default_factory=dict)
    left: list[LeftRejects] = field(default_factory=list)
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
            yield (
                "correct the rows and put the files into the inbox, under any name; keep the column _reject_id,"
                " which tells the rejects that they answer"
            )
        yield from (each.line("cannot be exported") for each in self.left)


def export(
    home: Path, ledger: Ledger, catalog: Catalog, target: str, batch_id: str | None = None, out: Path | None = None
) -> ExportResult:
    """Write the open rejects of a target, or of one batch: one file per batch, in the form of its source.

    A record that came again in a later file, still wrong, is exported in its last form. A record that was loaded and
    then taken back is exported with that as its reason. Without `out`, a file goes into its batch's folder.
    """
    done = ExportResult(of=batch_id)
    places = still_wrong(ledger, target, reject_places(ledger, target, batch_id))
    last = reasons_of(ledger, {each.reject_id for each in places})
    now = reasons_now(ledger, target, places, last)
    for name, lines in lines_by_batch(places).items():
        rejects = {each for ids in lines.values() for each in ids}
        try:
            received, feed = source_of(home, ledger, catalog, target, name)
            folder = out or home / "batches" / name / "rejects"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with throwaway_folder(home) as work:
                reasons = with_balances(home, ledger, target, {each: now.get(each, []) for each in rejects})
                heard = exported_ids(ledger, target, {each: last.get(each, []) for each in rejects})
                path, found = write_rejects(received, feed, lines, reasons, heard, folder, work)
        except (OutOfReach, UnreadableFile) as error:
            done.left.append(LeftRejects(name, len(rejects), str(error)))
            continue
        if found:
            done.files[path] = len(found)
        if lost := rejects - found:
            done.left.append(
                LeftRejects(
                    name,
                    len(lost),
                    f"the rows of the feed {feed.name} are no longer read as these records; was the feed file changed?",
                )
            )
    return done
