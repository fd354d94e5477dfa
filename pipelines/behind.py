"""Whether the ledger is behind what lies in the home: it is lost, or an older copy, while its runs are here."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.feeds.catalog import Feed
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import KnownRecord
from pipelines.ledger.tables import UNDECIDED
from pipelines.loading.outcomes import CHANGE_REFUSED, Told, outcomes_in, short
from pipelines.loading.verdicts import SURELY_NOT_THERE
from pipelines.on_record import is_of, manifest_in
from pipelines.session import Session, received_before

OUTCOMES_A_LOOK = 2_000


def batch_behind(session: Session, feed: Feed, batch_id: str) -> str | None:
    """A batch with records of the feed's source and kind of which the ledger lacks runs: this one before others.

    What such a batch sent may come again in any file. Looked up once a session.
    """
    if session.behind is None:
        session.behind = dict(_behind(session))
    here = [name for name, about in session.behind.items() if not about or (feed.source, feed.resource) in about]
    return batch_id if batch_id in here else next(iter(here), None)


def _behind(session: Session) -> Iterator[tuple[str, set[tuple[str, str]]]]:
    """Batches, each with the sources and kinds of resource that its runs have put down."""
    numbers = session.ledger.ended_runs(session.target)
    for folder in sorted((session.home / "batches").iterdir()):
        runs = [run.name for run in folder.glob("run-*")]
        known = {f"run-{number}" for number in numbers.get(folder.name, ())}
        if known.issuperset(runs):
            continue
        about = _about(folder)
        if not about and received_before(folder) is None:
            continue  # purged, and what its runs were is not told any more: nothing can be found out of it
        if ledger_is_behind(session.home, session.ledger, session.target, folder.name):
            yield folder.name, about


def _about(folder: Path) -> set[tuple[str, str]]:
    manifests = filter(None, map(manifest_in, folder.glob("run-*")))
    return {(each["source"], each["resource"]) for each in manifests}


def ledger_is_behind(home: Path, ledger: Ledger, target: str, batch_id: str) -> bool:
    """Whether runs of the batch at this target are here that the ledger does not know, or not to their end: it is lost,
    or an older one. A run of its own that ended later makes good for them, unless it could not read the file.
    """
    folders = list((home / "batches" / batch_id).glob("run-*"))
    found = [(folder, manifest) for folder in folders if (manifest := manifest_in(folder))]
    runs = ledger.runs(target, batch_id)
    untold = set(folders) - {folder for folder, _ in found}
    if max(map(number_of, untold), default=0) > ledger.newest_run(batch_id):
        return True
    known = {run["started_at"]: run["finished_at"] for run in runs}
    ended = max((run["started_at"] for run in runs if run["finished_at"] and run["state"] != "failed"), default="")
    return any(
        manifest["started_at"] > ended and _is_news(ledger, folder, manifest, known)
        for folder, manifest in found
        if is_of(manifest, target)
    )


def number_of(run: Path) -> int:
    """The number of a run, by the name of its folder."""
    number = run.name.split("-")[1]
    return int(number) if number.isdecimal() else 0


def _is_news(ledger: Ledger, folder: Path, manifest: dict[str, Any], known: dict[str, str | None]) -> bool:
    """Whether a run has done more than the ledger knows, which may be a copy of the time when it was under way."""
    if known.get(manifest["started_at"]):
        return False
    if manifest["started_at"] not in known or manifest.get("ended_at"):
        return True
    of = (manifest["target"], manifest["source"], manifest["resource"])
    return any(_is_newer(ledger, of, told) for told in _batched(outcomes_in(folder), OUTCOMES_A_LOOK))


def _is_newer(ledger: Ledger, of: tuple[str, str, str], told: Sequence[Told]) -> bool:
    """Whether any of these outcomes is one that the ledger does not have, nor a later one of the record."""
    known = ledger.known(*of, {each.key for each in told})
    return any(each.key not in known or _goes_beyond(known[each.key], each) for each in told)


def _goes_beyond(record: KnownRecord, told: Told) -> bool:
    """What was refused made nothing; what the ledger wrote down later, or has still to write, is no news to it.

    An outcome is on record before it is in the ledger: who is killed in between looks the row up.
    """
    if told.state == CHANGE_REFUSED or told.generation < record.generation:
        return False
    if told.generation > record.generation:
        return True
    if told.at <= (record.finished_at or ""):
        return False
    if record.state in SURELY_NOT_THERE:  # and would be sent: the ledger does not know that it was
        return told.state != "refused"
    if record.state in UNDECIDED:
        return False
    made = told.resource_id is not None and told.resource_id != record.resource_id
    return made or (told.state == "updated" and told.content != short(record.content_hash))


def _batched(items: Iterator[Told], size: int) -> Iterator[list[Told]]:
    while some := list(islice(items, size)):
        yield some
