"""Whether the records of a file are known under another source: its feed was renamed, or its `source` changed."""

from collections.abc import Iterator
from pathlib import Path

from pipelines.feeds.catalog import Feed
from pipelines.ledger_tables import LANDED, UNDECIDED
from pipelines.session import Session
from pipelines.spill import batches
from pipelines.validation.outcome import Validated

ROWS_A_LOOK = 4_000
LOOKED_AT = 1_000
A_SHARE = 10
"""Of how many records that are new to their source one, known elsewhere with key and content, stops the file."""
GONE = ("planned", "undone")


def known_elsewhere(session: Session, feed: Feed, validated: Validated) -> str | None:
    """The sentence why nothing of a file may be sent, whose records would be made a second time; None for most files.

    Some records, from all over the file, stand for all.
    """
    others = {row["source"] for row in session.ledger.batches(session.target) if row["resource_type"] == feed.resource}
    others.discard(feed.source)
    if not others or not validated.accepted:
        return None
    some = dict(_some(validated.folder / "accepted.parquet", -(-validated.accepted // LOOKED_AT)))
    known = session.ledger.known(session.target, feed.source, feed.resource, some)
    new = {key: content for key, content in some.items() if key not in known}
    for source in sorted(others):
        found = session.ledger.known(session.target, source, feed.resource, new).values()
        there = sum(r.content_hash == new[r.key] and r.state in THERE for r in found)
        if there and there * A_SHARE >= len(new):
            return (
                f"{there:,} of {len(new):,} records that were looked at are known under the source {source}, and under "
                f"{feed.source} they would be made a second time; a feed file that was renamed keeps its source by "
                f'source = "{source}"'
            )
    return None


THERE = tuple(state for state in (*LANDED, *UNDECIDED) if state not in GONE)


def _some(accepted: Path, apart: int) -> Iterator[tuple[str, str]]:
    """Key and content of every so many records."""
    first = 0
    for part in batches(accepted, ROWS_A_LOOK, ["key", "content_hash"]):
        rows = part[-first % apart :: apart] if apart > 1 else part
        yield from zip(rows.column("key").to_pylist(), rows.column("content_hash").to_pylist(), strict=True)
        first += len(part)
