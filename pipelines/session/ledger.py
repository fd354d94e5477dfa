"""Open the ledger of a home, and nothing else. Commands that need no target import only this.

Before a journal begins, records of versions before the journal are taken from `outcomes.ndjson` in the folders of runs,
since the ledger may be lost, or an older copy. After that, nothing reads these files.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import permutations
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from sqlalchemy import Connection, Table, delete, select

from fhir_service.paths import exists, matching
from pipelines.home.inbox import BATCHES, BEYOND
from pipelines.ledger import states
from pipelines.ledger import tables as t
from pipelines.ledger.access import JOURNAL
from pipelines.ledger.lease import is_moment, utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.manifests import manifest_in
from pipelines.ledger.states import MADE
from pipelines.ledger.tables import LedgerError

COPIES = "CHARTFERRY_COPIES"
"""The place where each publication is copied: a folder, or a prefix of an object store."""


def open_ledger(home: Path, environ: Mapping[str, str], anew: bool = False) -> Ledger:
    """Open the home's ledger, or the one that the environment names. Raises `LedgerError`.

    anew: True to begin a new journal from the ledger's tables if the journal is gone.
    """
    url = environ.get("CHARTFERRY_LEDGER")
    if url and "://" not in url:
        raise LedgerError("CHARTFERRY_LEDGER is not the URL of a database (postgresql+psycopg://...)")
    batches = home / "batches"
    ledger = Ledger.open(
        url or home / "ledger.db", anew=anew, copies=batches / "journal", first=partial(take_outcomes, batches)
    )
    if (place := environ.get(BATCHES)) and Path(place).absolute() != batches.absolute():
        if problem := _not_apart(environ):
            ledger.close()
            raise LedgerError(problem)
        ledger.keep_batches(batches, place)
        if ledger.stored:  # machines that share files date them by their common clock
            ledger.stored.clock, ledger.of_here = ledger.clock, lambda moment: moment
    return ledger


def _not_apart(environ: Mapping[str, str]) -> str | None:
    """Return a sentence about settings whose places are equal or inside one another; None if there are none."""
    places = {name: f"{environ[name].rstrip('/')}/" for name in (BATCHES, COPIES, BEYOND) if environ.get(name)}
    for (one, its), (other, others) in permutations(places.items(), 2):
        if its == others:
            return f"{one} and {other} name one place: give each a prefix of its own"
        if its.startswith(others) and other != BEYOND:  # files deeper in an inbox are not looked at
            return f"{one} lies within {other}: give each a prefix of its own"
    return None


def has_ledger(home: Path, environ: Mapping[str, str]) -> bool:
    """True if the environment names a ledger, or if the home has one, whole or as its journal alone."""
    return bool(environ.get("CHARTFERRY_LEDGER")) or any(exists(home / name) for name in ("ledger.db", JOURNAL))


def nothing_in(home: Path) -> str:
    """Return the sentence for a home without a ledger, which mostly is a wrong folder."""
    return f"{home}: no ledger here, so nothing was imported yet (--home names another folder)"


@contextmanager
def ledger_of(home: Path, environ: Mapping[str, str]) -> Iterator[Ledger | None]:
    """Yield the ledger, opened without making one; yield None if there is none yet."""
    if not has_ledger(home, environ):
        yield None
        return
    with closing(open_ledger(home, environ)) as ledger:
        yield ledger


NAME = "outcomes.ndjson"
TELLS = (*MADE, "undone")
STATES = (*TELLS, "refused", "in_doubt")
STREAM = ("target", "source", "resource_type")


class UpgradedOutcome(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The outcome of a row in the form of its line. at: its time, which an earlier line has.

    content: the beginning of the row's content hash. asked_at: when a row in doubt was first sent, as UTC text.
    """

    key: str
    content: Annotated[str, Meta(min_length=1)]
    line: Annotated[int, Meta(gt=0, lt=1 << 40)]
    generation: Annotated[int, Meta(gt=0, lt=1_000)]
    state: str
    resource_id: str | None
    status: Annotated[int, Meta(gt=0, lt=1_000)] | None
    asked_at: str | None
    at: str = ""


def take_outcomes(batches: Path, connection: Connection) -> None:
    """Take the outcomes in the batches' folders that the ledger lacks into its records."""
    found = ((manifest_in(path.parent), path) for path in matching(batches, f"*-*/run-*/{NAME}"))
    runs = [(manifest, path) for manifest, path in found if manifest]
    for manifest, path in sorted(runs, key=lambda run: str(run[0]["started_at"])):
        rows = _rows(path.with_name("accepted.parquet"))
        for outcome in _outcomes(path):
            _take(connection, manifest, path.parent.parent.name, outcome, rows.get(outcome.key, {}))


def _outcomes(path: Path) -> Iterator[UpgradedOutcome]:
    """Yield the outcomes of a run, oldest first. Skip a line that is no outcome, or was cut off."""
    at = ""
    with path.open("rb") as file:
        for line in file:
            try:
                said = msgspec.json.decode(line, type=UpgradedOutcome | str)
            except (msgspec.MsgspecError, ValueError):
                continue
            if isinstance(said, str):
                at = said if is_moment(said) else at
            elif said.state in STATES and (said.asked_at is None or is_moment(said.asked_at)):
                said.at = at
                yield said


def _rows(accepted: Path) -> dict[str, dict[str, Any]]:
    """Return hash, patient, time and cents of a run's accepted rows, by key; none if the file is purged or damaged."""
    # Most homes have no such runs, so that opening their ledger needs neither import.
    import duckdb

    from pipelines.home.spill import is_whole

    if not is_whole(accepted):
        return {}
    columns = "key, content_hash, patient_id, source_at, amount_cents"
    try:
        with duckdb.connect() as db:
            found = db.execute(f"SELECT {columns} FROM read_parquet($1)", [str(accepted)])
            names = [column[0] for column in found.description]
            return {row[0]: dict(zip(names, row, strict=True)) for row in found.fetchall()}
    except duckdb.Error:
        return {}


def _take(
    connection: Connection, manifest: dict[str, Any], batch_id: str, outcome: UpgradedOutcome, row: dict[str, Any]
) -> None:
    """Write an outcome into the records, unless the ledger has it or a later one of the record."""
    target, stream = manifest["target"], (manifest["target"], manifest["source"], manifest["resource"])
    numbers = {
        "stream_id": _number(connection, t.stream, dict(zip(STREAM, stream, strict=True))),
        "batch_no": _number(connection, t.batch, {"target": target, "batch_id": batch_id}, _about(manifest)),
        "feed_no": _number(connection, t.feed_version, {"feed_hash": manifest["feed_hash"]}),
    }
    this = (t.records.c.stream_id == numbers["stream_id"], t.records.c.key == outcome.key)
    known = connection.execute(select(t.records).where(*this)).one_or_none()
    if known and not _is_newer(outcome, known):
        return
    same = str(row.get("content_hash", "")).startswith(outcome.content)
    at, source_at = (
        outcome.asked_at or outcome.at or utc_text(datetime.now(UTC)),
        row.get("source_at") if same else None,
    )
    values = {
        **numbers,
        "key": outcome.key,
        "generation": outcome.generation,
        "line": outcome.line,
        "content_hash": row["content_hash"] if same else outcome.content,
        "state": outcome.state,
        "resource_id": outcome.resource_id or (known.resource_id if known else None),
        "patient_id": row.get("patient_id") if same else None,
        "source_at": utc_text(source_at) if isinstance(source_at, datetime) else source_at,
        "amount_cents": row.get("amount_cents") if same else None,
        "attempts": known.attempts + 1 if known else 1,
        "http_status": outcome.status,
        "first_attempt_at": at,
        "finished_at": outcome.at or None,
        "first_sent_at": known.first_sent_at if known else at,
    }
    if known:
        connection.execute(delete(t.records).where(*this))
    connection.execute(t.records.insert().values(values))


def _is_newer(outcome: UpgradedOutcome, known: Any) -> bool:
    """True if an outcome is newer than the ledger's state of the record."""
    if outcome.generation != known.generation:
        return bool(outcome.generation > known.generation)
    unsure = known.state in states.UNDECIDED and outcome.state in TELLS
    later = outcome.at > (known.finished_at or known.first_attempt_at or "")
    return unsure or (later and outcome.state in TELLS and outcome.resource_id != known.resource_id)


def _about(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of an unknown batch, as far as the manifest of a run has them."""
    about = {"feed": "feed", "source": "source", "resource_type": "resource", "received_at": "started_at"}
    about |= {"file_name": "file", "file_sha256": "file_sha256"}
    found = {column: manifest.get(name) for column, name in about.items()}
    return {"state": "running", **{column: said for column, said in found.items() if isinstance(said, str)}}


def _number(
    connection: Connection, table: Table, names: dict[str, str], about: Mapping[str, Any] = MappingProxyType({})
) -> int:
    """Return the number of a stream, batch or feed in records; insert it first if it is missing."""
    [number] = table.primary_key.columns
    this = select(number).where(*(table.c[name] == said for name, said in names.items()))
    found = connection.execute(this).scalar()
    if found is None:
        connection.execute(table.insert().values({**names, **about}))
        found = connection.execute(this).scalar_one()
    return int(found)
