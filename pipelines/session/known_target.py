"""Recognize a target, also one that shows an id for the first time, shows none any more, or has another address.

Under another name, everything would be sent to it a second time. If the ledger does not know the target, or is lost,
the manifests of the home's runs are read.
"""

from collections.abc import Collection
from pathlib import Path

from sqlalchemy import select

from fhir_service.paths import matching
from pipelines.client.replies import NoResult, TargetUnusable
from pipelines.home.batch_files import MANIFESTS
from pipelines.home.user import user_name
from pipelines.ledger import tables as t
from pipelines.ledger.addresses import as_spelled, known_as, spelled_alike
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.manifests import manifest_in
from pipelines.ledger.tables import NotPossible
from pipelines.session.connections import TargetConnection

LOOKED_AT = 5
FORMERLY = "target --formerly"

Known = dict[str, set[str]]
"""The addresses of targets, by their names in the ledger."""


def known_target(connection: TargetConnection, ledger: Ledger, home: Path) -> str:
    """Return the target's name in the ledger. Raises `TargetUnusable` if that is unclear."""
    name, before = (known_as(ledger, each) for each in (connection.id, connection.base_url))
    in_the_ledger = _known(ledger)
    known = in_the_ledger if name in in_the_ledger else _with_those_on_record(ledger.batches_in(home), in_the_ledger)
    name, before = (as_spelled(each, known) for each in (name, before))
    if name not in known and before not in known:
        before = _formerly_at(connection.base_url, known) or before
    is_alias = spelled_alike(name) != spelled_alike(connection.id)
    if connection.capabilities.store_id is None and not is_alias:
        _is_not_a_known_one_without_its_id(connection.base_url, known)
    if name not in known and not connection.capabilities.identified:
        _is_not_a_known_one_by_another_address(connection, ledger, set(known) - {before})
    if name in known or before not in known:
        return name
    if (made := _made(ledger, before)) and not _has(connection, made):
        return name
    ledger.note_alias(connection.id, before)
    return before


def _known(ledger: Ledger) -> Known:
    """Return the address of each target, by its name in the ledger."""
    found = ledger.read(select(t.target.c.target_id, t.target.c.base_url))
    return {str(name): {str(url)} for name, url in found}


def _with_those_on_record(batches: HomeBatches, known: Known) -> Known:
    """Return the known targets and those of the home's runs, with all addresses that they had."""
    found = {name: set(urls) for name, urls in known.items()}
    batches.bring(batches.names(), MANIFESTS)
    for run in filter(None, map(manifest_in, matching(batches.path, "*-*/run-*"))):
        found.setdefault(run["target"], set()).add(str(run.get("target_url", "")))
    return found


def _was_at(urls: Collection[str], base_url: str) -> bool:
    return spelled_alike(base_url) in map(spelled_alike, urls)


def _formerly_at(base_url: str, known: Known) -> str | None:
    """Return a target that is known by another address and is at this one now; None if there is none."""
    return next((name for name, urls in known.items() if "://" in name and _was_at(urls, base_url)), None)


def _is_not_a_known_one_without_its_id(base_url: str, known: Known) -> None:
    """Raise `TargetUnusable` for an address that had an id."""
    others = (name for name, urls in known.items() if _was_at(urls, base_url) and not _was_at([name], base_url))
    before = next(others, None)
    if before is not None:
        raise TargetUnusable(
            f"{base_url} was {before} before and shows no id now, so it may be another target: nothing was sent. "
            "Is /metadata still answered by the service?"
        )


def _is_not_a_known_one_by_another_address(
    connection: TargetConnection, ledger: Ledger, others: Collection[str]
) -> None:
    """Raise `TargetUnusable` if this target has resources that were sent to another: rows would be sent twice."""
    for other in sorted(others):
        if _has(connection, _made(ledger, other)):
            raise TargetUnusable(
                f"{connection.base_url} has resources that were sent to {other}; an import under this name would send"
                " all of them again. Nothing was sent. Use the earlier address; or, if that server has a new address"
                f" for good, run chartferry target --formerly {other}; or, if it is a copy of that server, use another"
                " home and ledger for it"
            )


def take_for(connection: TargetConnection, ledger: Ledger, former: str, why: str | None) -> str:
    """Take a target for the one that is known by another address, and record the decision; return its name. Raises
    `NotPossible`.
    """
    known = _known(ledger)
    before, name = as_spelled(known_as(ledger, former), known), known_as(ledger, connection.id)
    if before not in known:
        raise NotPossible(
            f"nothing was sent to {former}: it is known by none of {', '.join(sorted(known)) or 'no name'}"
        )
    if as_spelled(name, known) in known:
        raise NotPossible(
            f"{connection.base_url} is known as a target of its own: rows were sent to it under this name"
        )
    if not _has(connection, _made(ledger, before)):
        raise NotPossible(
            f"{connection.base_url} has none of the resources that were last sent to {former}, so it is another target"
        )
    with ledger.transaction():
        ledger.note_alias(connection.id, before)
        ledger.note_decisions(before, user_name(), FORMERLY, [connection.base_url], why)
    return before


def _made(ledger: Ledger, name: str) -> list[tuple[str, str]]:
    """Return the last resources that the ledger made at the target of this name, as `(type, id)`."""
    record = t.record.c
    query = select(record.resource_type, record.resource_id).where(
        record.target == name, record.resource_id.is_not(None)
    )
    made = ledger.read(query.order_by(record.finished_at.desc()).limit(LOOKED_AT))
    return [(str(kind), str(found)) for kind, found in made]


def _has(connection: TargetConnection, made: list[tuple[str, str]]) -> bool:
    """True if a target has any of these resources."""
    try:
        return any(connection.client.read(kind, found) is not None for kind, found in made)
    except NoResult as error:
        raise TargetUnusable(
            f"whether {connection.base_url} ({connection.id}) is a target that is known by another name could not be"
            f" told ({error}): nothing was sent"
        ) from None
