"""Reasons from the ledger why nothing of a file may be sent.

Its records may be known under another name, because the feed's source or key was changed. Or it may be a file with
only copayments, from a feed that never had one: its claims may only say where money was posted.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from sqlalchemy import and_, select

from pipelines.feeds.files.catalog import Feed
from pipelines.home.counted import counted, word_for
from pipelines.home.spill import batches
from pipelines.ledger import tables as t
from pipelines.ledger.row_fates import DONE_WITH
from pipelines.ledger.states import LANDED, MADE, UNDECIDED
from pipelines.session.confirmations import COPAYMENTS, NEW, is_confirmed
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult

ROWS_A_LOOK = 4_000
LOOKED_AT = 1_000
A_SHARE = 10
"""One record known under another name, among this many new ones, stops the file."""
FEWEST = 20
"""The fewest payments of a file that is asked about. In a smaller file, only copayments are no surprise."""
FEWEST_EQUAL = 2
"""The fewest equal records that stop a file: a single payment may well be the second one of its patient and day."""
PAYMENT = "PaymentNotice"
BY_FEED = "map the key in the feed file as before, or take only new rows"
BY_OTHERS = "a spreadsheet or their source may have changed the keys, so get a file with the earlier keys"
LOOKED_FOR = "line key content_hash".split()
GONE = ("planned", "undone")
THERE = tuple(state for state in (*LANDED, *UNDECIDED) if state not in GONE)

Records = Mapping[str, tuple[int, str]]
"""Line and hash of the content, by key."""


def withhold(session: Session, feed: Feed, batch_id: str, validated: ValidationResult) -> None:
    """Note the reasons why nothing of a file may be sent, if there are any."""
    validated.known_elsewhere = _known_elsewhere(session, feed, batch_id, validated)
    validated.unconfirmed = _unconfirmed(session, feed, batch_id, validated)


# -- records under another name


def _known_elsewhere(session: Session, feed: Feed, batch_id: str, validated: ValidationResult) -> str | None:
    """Return a sentence if the file's records would be created a second time; None for most files.

    A sample of records, from all over the file, stands for all. Another importer may have sent some of them during the
    look-up, as for a file with the same rows. That is no reason: a sentence counts only if the records are as new
    after the look-up as before.
    """
    others = {row["source"] for row in session.ledger.batches(session.target) if row["resource_type"] == feed.resource}
    others.discard(feed.source)
    formerly, is_paid = _feeds_of_other_keys(session, feed), feed.resource == PAYMENT
    if not validated.accepted or not (others or formerly or is_paid or _was_loaded(session, batch_id)):
        return None
    some = dict(_some(validated.folder / "accepted.parquet", -(-validated.accepted // LOOKED_AT)))
    new = _new(session, feed, some)
    while why := _why_known(session, feed, batch_id, new, formerly, sorted(others)):
        if (still := _new(session, feed, some)).keys() == new.keys():
            return why
        new = still
    return None


def _new(session: Session, feed: Feed, some: Records) -> Records:
    """Return the records of these that would be created."""
    known = session.ledger.known(session.target, feed.source, feed.resource, some)
    new = {key: about for key, about in some.items() if key not in known or known[key].state == "refused"}
    for key in _done_with(session, feed, new):
        del new[key]
    return new


def _why_known(
    session: Session, feed: Feed, batch_id: str, new: Records, formerly: Sequence[int], others: Sequence[str]
) -> str | None:
    """Return the sentence why new records are known ones under another name; None if they are not.

    formerly: earlier contents of the feed, which made other keys. others: the other sources of such records.
    """
    looked_at = counted(len(new), "record that was looked at", "records that were looked at")
    is_paid = feed.resource == PAYMENT
    if _many(there := _under_other_keys(session, batch_id, new), new):
        were = word_for(there, "was", "were")
        return (
            f"{there:,} of {looked_at} {were} loaded from this file under other keys, and would be made a second time; "
            "map the key in the feed file as before"
        )
    if (is_paid or formerly) and not is_confirmed(session.ledger, session.target, batch_id, NEW, feed):
        there = _with_other_keys(session, feed, batch_id, None if is_paid else formerly, new)
        if there >= FEWEST_EQUAL and _many(there, new):
            return (
                f"{there:,} of {looked_at} are known with the same content under other keys, and would be made a "
                f"second time; {BY_FEED if formerly else BY_OTHERS}. If they are different records, run "
                f"chartferry {NEW} {batch_id}"
            )
    for source in others:
        if _many(there := _under(session, source, feed.resource, new), new):
            are = word_for(there, "is", "are")
            return (
                f"{there:,} of {looked_at} {are} known under the source {source}, and under {feed.source} would be "
                f'made a second time; if the feed file was renamed, set source = "{source}" in it'
            )
    return None


def _was_loaded(session: Session, batch_id: str) -> bool:
    query = select(t.records.c.line).where(t.of_batch(t.records, session.target, batch_id)).limit(1)
    return session.ledger.value(query) is not None


def _many(there: int, new: Records) -> bool:
    return bool(there) and there * A_SHARE >= len(new)


def _under(session: Session, source: str, resource_type: str, new: Records) -> int:
    """Return how many records are known under a source, with equal content."""
    found = session.ledger.known(session.target, source, resource_type, new).values()
    same = (record for record in found if record.holds(new[record.key][1]))
    return sum(record.state in THERE for record in same)


def _under_other_keys(session: Session, batch_id: str, new: Records) -> int:
    """Return how many records were loaded from this same file under another key."""
    lines = [line for line, _ in new.values()]
    record = t.records.c
    query = select(record.line).where(
        t.of_batch(t.records, session.target, batch_id), record.line.in_(lines), record.state.in_(THERE)
    )
    return len({line for (line,) in session.ledger.read(query)})


def _feeds_of_other_keys(session: Session, feed: Feed) -> list[int]:
    """Return the numbers of earlier contents of the feed, which made other keys. Return none if a person has
    confirmed, for a file with today's key, that its records are others.
    """
    run, batch = t.run.c, t.batch.c
    same = (batch.target == session.target, batch.feed == feed.name, batch.source == feed.source)
    of_run = and_(run.target == batch.target, run.batch_id == batch.batch_id)
    said = session.ledger.decided(NEW, session.target)
    of_feed = select(run.batch_id).join(t.batch, of_run).where(*same, run.key_hash == feed.key_hash)
    if said and not said.isdisjoint(name for (name,) in session.ledger.read(of_feed)):
        return []
    other = select(run.feed_hash).join(t.batch, of_run).where(*same, run.key_hash != feed.key_hash)
    query = select(t.feed_version.c.feed_no).where(t.feed_version.c.feed_hash.in_(other))
    return [number for (number,) in session.ledger.read(query)]


def _done_with(session: Session, feed: Feed, keys: Collection[str]) -> set[str]:
    """Return the keys whose rows are not sent by themselves: a reject of the key is done with, or waited for."""
    reject, of = t.reject.c, (session.target, feed.source, feed.resource)
    query = select(reject.source_key).where(t.of_stream(reject, of), reject.state.in_(DONE_WITH))
    return {key for (key,) in session.ledger.read_of(query, reject.source_key, sorted(keys))}


def _with_other_keys(session: Session, feed: Feed, batch_id: str, feeds: Sequence[int] | None, new: Records) -> int:
    """Return how many records other batches have made with equal content, each counted for one of these records.

    feeds: count only records that were read by these contents of feeds; None for all.
    """
    record, of = t.records.c, (session.target, feed.source, feed.resource)
    here = record.stream_id == t.number_of(of)
    hashes = {content for _, content in new.values()}
    query = select(record.content_hash).where(here, record.state.in_(THERE), record.content_hash.in_(hashes))
    batch = t.batch.c
    own = select(batch.batch_no).where(batch.target == session.target, batch.batch_id == batch_id)
    query = query.where(record.batch_no.not_in(own))
    query = query if feeds is None else query.where(record.feed_no.in_(feeds))
    there = Counter(content for (content,) in session.ledger.read(query))
    return (there & Counter(content for _, content in new.values())).total()


def _some(accepted: Path, apart: int) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield key, line and hash of one record in every `apart`."""
    first = 0
    for part in batches(accepted, ROWS_A_LOOK, LOOKED_FOR):
        rows = part[-first % apart :: apart] if apart > 1 else part
        for line, key, content in zip(*(rows.column(name).to_pylist() for name in LOOKED_FOR), strict=True):
            yield key, (line, content)
        first += len(part)


# -- copayments alone


def _unconfirmed(session: Session, feed: Feed, batch_id: str, validated: ValidationResult) -> str | None:
    """Return the sentences why a file with only copayments waits for a person; None if it may be sent."""
    payments = validated.records - validated.skipped
    if not validated.copayments or validated.without_claim[0] or payments < FEWEST:
        return None
    # The ledger has rows of it if an earlier version began to load it.
    if session.ledger.row_counts(session.target, batch_id) or _has_had_some(session, feed, batch_id):
        return None
    if is_confirmed(session.ledger, session.target, batch_id, COPAYMENTS, feed):
        return None
    return (
        f"all {validated.copayments:,} payments that could be read have a claim, which makes them copayments, and the "
        f"feed {feed.name} never had any; nothing was sent. If they are copayments, run chartferry {COPAYMENTS}"
        f' {batch_id}, or set copayments = "all" in the feed file. If not, map claim_id only for some rows (when), or'
        " not at all"
    )


def _has_had_some(session: Session, feed: Feed, batch_id: str) -> bool:
    """True if another batch of the feed had copayments, and records of it are at the target."""
    others = (row for row in session.ledger.batches(session.target) if row["batch_id"] != batch_id)
    return any(row["feed"] == feed.name and row["copayments"] and any(row[name] for name in MADE) for row in others)
