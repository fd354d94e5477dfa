"""Stage the target's resources in table `there`: all of a type, or those that the ledger knows and those made since.

The second way needs a target whose statement names the search parameters `_lastUpdated` and `identifier`; any other
target is read whole.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import duckdb

from pipelines.client.client import PAGE, FhirClient
from pipelines.client.comparison import DATED, NOT_IN_FORCE, fingerprints, referred
from pipelines.client.identifiers import IMPORTERS, identifier_of, record_of
from pipelines.client.replies import NoResult, RequestRefused, UnknownOutcome, resources_of
from pipelines.client.threads import threads
from pipelines.client.whole import AT_ONCE, LARGE, IncompleteSearch, WholeSearch
from pipelines.loading.lookup import DAY
from pipelines.loading.task_content import element_hashes
from pipelines.session.key_spellings import read_today
from pipelines.session.needed_reads import reading
from pipelines.session.session import Session
from pipelines.verifying.staging import LIVE, StagingTable, number

READS = 1_000
"""The number of single reads that are queued at once."""


def bodies_by_id(session: Session, kind: str, ids: Sequence[str]) -> Iterator[tuple[int, Collection[dict[str, Any]]]]:
    """Yield the number of ids looked at, and their resources. A search reads many; those that it does not show are
    read one by one, since only a read proves that a resource is gone.
    """
    client, alone = session.connection.client, list[str]()
    with threads(session.pace.at_once, "by id") as pool:
        parts = [*_parts(ids, PAGE)]
        for part, found in zip(parts, pool.map(partial(client.read_many, kind), parts), strict=True):
            alone += [name for name in part if name not in found]
            yield len(found), found.values()
        for part in _parts(alone, READS):
            for body in pool.map(partial(_alone, client, kind), part):
                yield 1, () if body is None else (body,)


def _parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[at : at + size] for at in range(0, len(ids), size))


def _alone(client: FhirClient, kind: str, name: str) -> dict[str, Any] | None:
    """Read one resource; return None if the target says that it is gone. Raises `UnknownOutcome` with the resource's
    name.
    """
    try:
        return client.read(kind, name)
    except NoResult as error:
        raise UnknownOutcome(f"{kind}/{name}: {error}") from None


TRIES = (AT_ONCE, AT_ONCE, 1)
"""Pages that are read at once, in one reading after another until a reading is complete."""
THERE = "id patient_id status made system record_key record_generation spelling content timed said cents"
SUBJECTS = {"PaymentNotice": "request", "QuestionnaireResponse": "subject", "Task": "for"}
ELEMENTS = {
    "PaymentNotice": "identifier,request,amount,created,extension,status",
    "QuestionnaireResponse": "identifier,questionnaire,subject,status,authored,item",
    "Task": "identifier,for,description,status,authoredOn,requester,owner,restriction,input,extension",
}
"""The elements that are compared."""
MOST_CENTS = 2**63
WITHOUT = "coalesce(there.status, '') IN ('entered-in-error', 'cancelled')"
"""True for a resource that was taken back. Some targets show no status."""
MISSING = "SELECT DISTINCT resource_id FROM {} AS ours ANTI JOIN there ON there.id = ours.resource_id"


# -- all of a type


def stage_target(db: duckdb.DuckDBPyConnection, session: Session, kind: str) -> None:
    """Fill table `there` with every resource of a type, once.

    Raises `TargetUnusable`, also if the number of resources differs from the target's count.
    """
    session.progress.stage("verify", kind)
    *first, last = TRIES
    with reading(kind):
        for at_once in first:
            with suppress(IncompleteSearch):
                _read_whole(db, session, kind, at_once)
                break
        else:
            _read_whole(db, session, kind, last)
    session.progress.end()


def _read_whole(db: duckdb.DuckDBPyConnection, session: Session, kind: str, at_once: int) -> None:
    """Fill `there`. Raises `IncompleteSearch`, and as the reading of pages does."""
    pages = session.connection.client.pages(kind, wishes=_wishes(session, kind), at_once=at_once)
    read = WholeSearch(pages, kind)
    with StagingTable(db, "there", THERE) as there:
        for number, resources in enumerate(read):
            if number == 0 and read.counts.first:
                session.progress.expect(read.counts.first)
            _add(there, session, kind, resources)
    read.check(_each_once(db))


def _wishes(session: Session, kind: str) -> dict[str, str]:
    """Return the parameters of a search for everything: large pages, and an exact count if the target supports it."""
    return {**LARGE, **({"_total": "accurate"} if kind in session.connection.capabilities.dated else {})}


def _add(there: StagingTable, session: Session, kind: str, resources: Sequence[dict[str, Any]]) -> None:
    for body in resources:
        there.add(there_of(kind, body))
    session.progress.advance(len(resources))


def _each_once(db: duckdb.DuckDBPyConnection) -> int:
    """Remove repeats, which pages have if resources were made meanwhile; return the number of resources."""
    found, different = db.execute("SELECT count(*), count(DISTINCT id) FROM there").fetchall()[0]
    if found != different:
        db.execute("DELETE FROM there WHERE rowid NOT IN (SELECT min(rowid) FROM there GROUP BY id)")
    return int(different)


def stage_hidden(db: duckdb.DuckDBPyConnection, session: Session, kind: str) -> None:
    """Add to `there` the ledger's resources that no page showed and a read by id finds; fill table `hidden` with their
    ids.

    A target's searches may lag behind its store. Raises `TargetUnusable`, with the name of a resource that cannot be
    read.
    """
    _read_missing(db, session, kind, f"(FROM ours WHERE {LIVE})")
    session.progress.end()


def _read_missing(db: duckdb.DuckDBPyConnection, session: Session, kind: str, of: str, those: str = "true") -> None:
    """Add resources of a table that `there` lacks and a read by id finds, and fill `hidden`. Begin a progress stage if
    any are to be read.

    those: a condition for the resources that the searches should have shown.
    """
    first = number(db, "SELECT coalesce(max(rowid), -1) + 1 FROM there")
    missing = [name for (name,) in db.execute(MISSING.format(of)).fetchall()]
    if missing:
        session.progress.stage("read by id", kind, len(missing))
    with reading(kind), StagingTable(db, "there", THERE, keep=True) as there:
        for looked_at, found in bodies_by_id(session, kind, missing):
            for body in found:
                there.add(there_of(kind, body))
            session.progress.advance(looked_at)
    db.execute(f"CREATE OR REPLACE TABLE hidden AS SELECT id FROM there WHERE rowid >= {first} AND {those}")


# -- the resources that the ledger knows, and those changed since


def stage_known(db: duckdb.DuckDBPyConnection, session: Session, kind: str, named: bool) -> bool:
    """Fill table `there` with the resources that the ledger knows and those that may be ours besides. Return False if
    the target's searches are not sufficient.

    First come searches: for our identifiers, or (for payments, and rows sent without one) for everything made or
    changed since the first was sent. Then the ledger's resources that the searches did not show are read by id. If a
    read finds one of these, the searches are incomplete, so that only a whole reading is a proof.

    named: True if every row of the type was sent with its identifier.
    """
    capabilities = session.connection.capabilities
    searches = _searches(db, kind, named)
    if not (kind in capabilities.dated & capabilities.identified and searches):
        return False
    session.progress.stage("verify", kind, number(db, "SELECT count(*) FROM known"))
    with reading(kind), StagingTable(db, "there", THERE) as there:
        wishes = {"_elements": ELEMENTS[kind], **_wishes(session, kind)}
        try:
            for search in searches:
                for page in session.connection.client.pages(kind, search, wishes, AT_ONCE):
                    _add(there, session, kind, resources_of(page, kind))
        except (RequestRefused, IncompleteSearch):
            return _not_told(session)
    _each_once(db)
    session.progress.end()
    by_name = f"system LIKE '{IMPORTERS}%'" if "identifier" in searches[0] else "true"
    _read_missing(db, session, kind, "known", by_name)
    if number(db, "SELECT count(*) FROM hidden"):
        return _not_told(session)
    session.progress.end()
    return True


def _not_told(session: Session) -> bool:
    session.progress.end("the target's searches do not show all of it: it is read whole", "not enough")
    return False


def _searches(db: duckdb.DuckDBPyConnection, kind: str, named: bool) -> list[dict[str, str]]:
    """Return the searches that show all that may be ours; none if the ledger does not know since when."""
    if named and kind != "PaymentNotice":
        sources = db.execute("SELECT DISTINCT source FROM ours ORDER BY source").fetchall()
        return [{"identifier": f"{IMPORTERS}{source}:{kind}|"} for (source,) in sources]
    sent = "(SELECT first_sent_at FROM ours UNION ALL SELECT first_sent_at FROM former)"
    [[first]] = db.execute(f"SELECT min(first_sent_at) FROM {sent}").fetchall()
    if first is None:
        return []
    since = (datetime.fromisoformat(first).astimezone(UTC) - DAY).isoformat(timespec="seconds")
    return [{"_lastUpdated": f"ge{since}"}]


# -- one resource


def there_of(kind: str, body: dict[str, Any]) -> tuple[Any, ...]:
    """Return the row of `there` for a resource. Raises `UnknownOutcome` for a value that no column can hold."""
    shown = body.get(SUBJECTS[kind])
    subject = shown if isinstance(shown, dict) else {}
    identifier = identifier_of(body)
    return (
        body["id"],
        referred({"reference": "", **subject}).rpartition("/")[2] or None,
        _status(kind, body),
        _text(kind, body, body, DATED[kind]),
        _text(kind, body, identifier, "system"),
        *(record := record_of(str(identifier.get("value") or ""))),
        today if (today := read_today(record[0])) != record[0] else None,
        *fingerprints(kind, body),
        element_hashes(body) if kind == "Task" else None,
        _cents(body) if kind == "PaymentNotice" else None,
    )


def _status(kind: str, body: Mapping[str, Any]) -> str | None:
    """Return the status; for a payment that does not count for a balance, `entered-in-error`."""
    status = _text(kind, body, body, "status")
    return "entered-in-error" if kind == "PaymentNotice" and status in NOT_IN_FORCE else status


def _text(kind: str, body: Mapping[str, Any], element: Mapping[str, Any], name: str) -> str | None:
    """Return a text of the resource, or of an element in it. Checked here, because DuckDB makes a text of any value."""
    found = element.get(name)
    if found is None or isinstance(found, str):
        return found
    raise UnknownOutcome(f"{kind}/{body['id']}: its {name} is no text")


def _cents(body: dict[str, Any]) -> int | None:
    """Return the amount in cents; None if it is not a whole number. Raises `UnknownOutcome` if it is too large to add
    up.
    """
    try:
        cents = Decimal(str(body["amount"]["value"])) * 100
        if abs(cents) < MOST_CENTS:
            return int(cents) if cents == int(cents) else None
    except (KeyError, TypeError, ArithmeticError, ValueError):
        return None
    raise UnknownOutcome(f"PaymentNotice/{body['id']}: its amount is too large")
