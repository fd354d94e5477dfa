"""Rejects given back: exported in the form they came in, to be corrected."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipelines.corrections.balances import with_balances
from pipelines.corrections.reject_file import write_rejects
from pipelines.corrections.sources import OutOfReach, lines_by_batch, source_of
from pipelines.feeds.files.catalog import Catalog, home_catalog
from pipelines.home.batch import Unreadable
from pipelines.home.preparing import prepare_home
from pipelines.home.scratch import throwaway_folder
from pipelines.ledger.addresses import known_as
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import exported_ids, reasons_of, reject_places, targets_with_rejects
from pipelines.session.connections import connect
from pipelines.session.ledger import ledger_of


@dataclass(frozen=True)
class Left:
    """Open rejects of a batch for which nothing could be done, and why."""

    batch_id: str
    rejects: int
    why: str

    def line(self, what: str) -> str:
        return f"{self.batch_id}: {_counted(self.rejects)} {what}: {self.why}"


def of_batch(batch_id: str | None) -> str:
    """Return words that say of which batch rejects were asked for; none where it was of all."""
    return f" of {batch_id}" if batch_id else ""


def _counted(number: int) -> str:
    return f"{number:,} {'reject' if number == 1 else 'rejects'}"


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
            yield f"{path}: {_counted(number)}"
        if self.files:
            yield "correct the rows and put the files into the inbox, under any name: _reject_id says what they answer"
        yield from (each.line("cannot be exported") for each in self.left)


def export_home(
    home: Path,
    environ: Mapping[str, str],
    feed_folders: Sequence[Path],
    insecure: bool = False,
    batch_id: str | None = None,
    out: Path | None = None,
) -> Exported:
    """`export` for a home. The target is asked for its name only where the ledger has rejects of several."""
    with ledger_of(home, environ) as ledger:
        if ledger is None:
            return Exported(of=batch_id)
        prepare_home(home)
        catalog = home_catalog(home, environ, feed_folders)
        targets = targets_with_rejects(ledger)
        if len(targets) > 1:
            with connect(home, environ, insecure) as connection:
                targets = [known_as(ledger, connection.id)]
        return export(home, ledger, catalog, targets[0], batch_id, out) if targets else Exported(of=batch_id)


def export(
    home: Path, ledger: Ledger, catalog: Catalog, target: str, batch_id: str | None = None, out: Path | None = None
) -> Exported:
    """Write the open rejects of a target, or of one batch: one file per batch, in the form of its source.

    A record that came again in a later file, still wrong, is exported as it came last. Without `out`, a file goes into
    its batch's folder.
    """
    done = Exported(of=batch_id)
    for name, lines in lines_by_batch(reject_places(ledger, target, batch_id)).items():
        rejects = {each for ids in lines.values() for each in ids}
        try:
            received, feed = source_of(home, ledger, catalog, target, name)
            folder = out or home / "batches" / name / "rejects"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with throwaway_folder(home) as work:
                reasons = with_balances(home, ledger, target, reasons_of(ledger, rejects))
                heard = exported_ids(ledger, target, reasons)
                path, found = write_rejects(received, feed, lines, reasons, heard, folder, work)
        except (OutOfReach, Unreadable) as error:
            done.left.append(Left(name, len(rejects), str(error)))
            continue
        if found:
            done.files[path] = len(found)
        if lost := rejects - found:
            done.left.append(Left(name, len(lost), f"the feed {feed.name} no longer takes their rows"))
    return done
