"""What the ledger knows a target by, also when that shows an id that it did not show before, or none any more.

Under another name everything would go there a second time. Where the ledger does not know it, or is lost, the runs of
the home tell.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from sqlalchemy import select

from pipelines.connections import Connection
from pipelines.ledger import tables as t
from pipelines.ledger.ledger import Ledger
from pipelines.loading.outcomes import outcomes_in
from pipelines.on_record import is_of, manifest_in
from pipelines.target.replies import NotDone, NotSent, Refused, TargetUnusable, Unknown
from pipelines.target.spelling import known_as, spelled_alike

LOOKED_AT = 5


def known_target(connection: Connection, ledger: Ledger, home: Path) -> str:
    """The name under which the ledger keeps the target. Raises `TargetUnusable` where that cannot be told."""
    name, before = (known_as(ledger, each) for each in (connection.id, connection.base_url))
    in_the_ledger = _known(ledger)
    known = in_the_ledger if name in in_the_ledger else _on_record(home) | in_the_ledger
    name, before = (_as_spelled(each, known) for each in (name, before))
    if name not in known and before not in known:
        before = _formerly_at(connection.base_url, known) or before
    if connection.capabilities.store_id is None:
        _is_not_a_known_one_without_its_id(connection.base_url, known)
    if name in known or before not in known:
        return name
    if not _has(connection, _made(ledger, before) if before in in_the_ledger else _made_on_record(home, before)):
        return name
    with ledger.transaction() as writing:
        writing.execute(t.alias.insert().values(target_id=connection.id, known_as=before))
    return before


def _known(ledger: Ledger) -> dict[str, str]:
    """The address of each target, by what the ledger knows it by."""
    with ledger.engine.connect() as reading:
        return {str(name): str(url) for name, url in reading.execute(select(t.target.c.target_id, t.target.c.base_url))}


def _on_record(home: Path) -> dict[str, str]:
    """The same by the runs of a home, the last of each telling the address."""
    runs = filter(None, map(manifest_in, home.glob("batches/*/run-*")))
    return {run["target"]: str(run.get("target_url", "")) for run in sorted(runs, key=lambda run: run["started_at"])}


def _as_spelled(name: str, known: dict[str, str]) -> str:
    alike = spelled_alike(name)
    return name if name in known else next((each for each in known if spelled_alike(each) == alike), name)


def _formerly_at(base_url: str, known: dict[str, str]) -> str | None:
    """What is known by another address than this, at which it is by now."""
    alike = spelled_alike(base_url)
    return next((name for name, url in known.items() if "://" in name and spelled_alike(url) == alike), None)


def _is_not_a_known_one_without_its_id(base_url: str, known: dict[str, str]) -> None:
    """Raises `TargetUnusable` for an address that had an id."""
    alike = spelled_alike(base_url)
    before = next((name for name, url in known.items() if spelled_alike(url) == alike != spelled_alike(name)), None)
    if before is not None:
        raise TargetUnusable(
            f"{base_url} was {before} before and shows no id now, so it may be another target: nothing was sent. "
            "Is /metadata still answered by the service?"
        )


def _made(ledger: Ledger, name: str) -> list[tuple[str, str]]:
    """What the ledger made last at the target of this name, as `(type, id)`."""
    record = t.record.c
    query = select(record.resource_type, record.resource_id).where(
        record.target == name, record.resource_id.is_not(None)
    )
    with ledger.engine.connect() as reading:
        made = reading.execute(query.order_by(record.finished_at.desc()).limit(LOOKED_AT))
        return [(str(kind), str(found)) for kind, found in made]


def _made_on_record(home: Path, name: str) -> list[tuple[str, str]]:
    """Something of what each of some runs made there."""

    def made() -> Iterator[tuple[str, str]]:
        for folder in home.glob("batches/*/run-*"):
            if (run := manifest_in(folder)) and is_of(run, name):
                told = (each.resource_id for each in outcomes_in(folder) if each.resource_id)
                yield from ((str(run.get("resource")), found) for found in islice(told, 1))

    return list(islice(made(), LOOKED_AT))


def _has(connection: Connection, made: list[tuple[str, str]]) -> bool:
    """Whether a target has any of these; also where there are none."""
    try:
        return not made or any(connection.client.read(kind, found) is not None for kind, found in made)
    except (NotSent, NotDone, Refused, Unknown) as error:
        raise TargetUnusable(
            f"{connection.base_url} was known by its address and shows the id {connection.id} now; whether it is the"
            f" same target could not be told ({error}): nothing was sent"
        ) from None
