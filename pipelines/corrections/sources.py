"""The files that rejects came in, by batch: the first lines of their records, and today's feed."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pipelines.feeds.files.catalog import Catalog, Feed, form_by_name, plain_name
from pipelines.home.batch import ReceivedFile, received_before
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import RejectPlace, reasons_of, reject_places
from pipelines.ledger.row_fates import OPEN
from pipelines.ledger.rows import Reason

NO_ENTRY = "FEED-FILE-06"
"""The rule that rejects a value without an entry in a crosswalk."""
NOT_HERE = (
    "its file is not in this home: run the command on the machine that received it, or, if its rows were purged,"
    " correct the records in the system that they came from"
)
Lines = dict[int, list[str]]
"""The ids of rejects by the physical line on which their record begins."""


class OutOfReach(Exception):
    """Rejects of a batch that cannot be given back. The text is one clause with the reason."""


def lines_by_batch(rejects: Iterable[RejectPlace]) -> dict[str, Lines]:
    """Group the places of rejects by batch."""
    found: dict[str, Lines] = {}
    for each in rejects:
        found.setdefault(each.batch_id, {}).setdefault(each.line, []).append(each.reject_id)
    return found


def source_of(home: Path, ledger: Ledger, catalog: Catalog, target: str, batch_id: str) -> tuple[ReceivedFile, Feed]:
    """Return a batch's file and its feed as it is today. Raises `OutOfReach`."""
    row = ledger.batch(target, batch_id)
    received = received_before(ledger.batches_in(home).folder(batch_id))
    if row is None or received is None:
        raise OutOfReach(NOT_HERE)
    feed = catalog.standing_for(row["feed"], row["source"], row["resource_type"])
    if feed is None:
        raise OutOfReach(
            f"the feed {row['feed']} no longer exists, and no single other feed has its source and kind; put its"
            " feed file back"
        )
    return _named(received, row["file_name"]), feed


def _named(received: ReceivedFile, name: str | None) -> ReceivedFile:
    """Return a file under the name that its batch has.

    The copy's name differs if equal bytes came to two machines at once. If the copy's name means another format, it
    stays.
    """
    is_read_alike = name and form_by_name(plain_name(name)) == form_by_name(plain_name(received.file_name))
    return replace(received, file_name=name) if name and is_read_alike else received


def rejected_by(
    ledger: Ledger, target: str, rule_id: str, batch_id: str | None = None
) -> dict[RejectPlace, list[Reason]]:
    """Return the open rejects of a target, or of one batch, that a rule has rejected, each with all of its reasons."""
    places = reject_places(ledger, target, batch_id, OPEN, rule_id)
    reasons = reasons_of(ledger, {each.reject_id for each in places})
    return {place: reasons[place.reject_id] for place in places if place.reject_id in reasons}  # else settled meanwhile
