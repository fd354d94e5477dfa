"""What the ledger knows a target by, also when that shows an id that it did not show before, or none any more.

Under another name everything would go there a second time.
"""

from sqlalchemy import select

from pipelines.connections import Connection
from pipelines.ledger import tables as t
from pipelines.ledger.ledger import Ledger
from pipelines.target.replies import NotDone, NotSent, Refused, TargetUnusable, Unknown
from pipelines.target.spelling import known_as, spelled_alike

LOOKED_AT = 5


def target_of(connection: Connection, ledger: Ledger) -> str:
    """The name under which the ledger keeps the target. Raises `TargetUnusable` where that cannot be told."""
    known = _known(ledger)
    if connection.capabilities.store_id is None:
        _is_not_a_known_one_without_its_id(connection.base_url, known)
    name = known_as(ledger, connection.id)
    before = known_as(ledger, connection.base_url)
    if name in known or before not in known or not _has_what_was_sent(connection, ledger, before):
        return name
    with ledger.transaction() as writing:
        writing.execute(t.alias.insert().values(target_id=connection.id, known_as=before))
    return before


def _known(ledger: Ledger) -> dict[str, str]:
    """The address of each target, by what the ledger knows it by."""
    with ledger.engine.connect() as reading:
        return {str(name): str(url) for name, url in reading.execute(select(t.target.c.target_id, t.target.c.base_url))}


def _is_not_a_known_one_without_its_id(base_url: str, known: dict[str, str]) -> None:
    """Raises `TargetUnusable` for an address that had an id."""
    alike = spelled_alike(base_url)
    before = next((name for name, url in known.items() if spelled_alike(url) == alike != spelled_alike(name)), None)
    if before is not None:
        raise TargetUnusable(
            f"{base_url} was {before} before and shows no id now, so it may be another target: nothing was sent. "
            "Is /metadata still answered by the service?"
        )


def _has_what_was_sent(connection: Connection, ledger: Ledger, name: str) -> bool:
    """Whether a target has what the ledger made at the one of this name; also where that is nothing."""
    record = t.record.c
    query = select(record.resource_type, record.resource_id).where(
        record.target == name, record.resource_id.is_not(None)
    )
    with ledger.engine.connect() as reading:
        made = reading.execute(query.order_by(record.finished_at.desc()).limit(LOOKED_AT)).all()
    try:
        return not made or any(connection.client.read(kind, found) is not None for kind, found in made)
    except (NotSent, NotDone, Refused, Unknown) as error:
        raise TargetUnusable(
            f"{connection.base_url} was known by its address and shows the id {connection.id} now; whether it is the"
            f" same target could not be told ({error}): nothing was sent"
        ) from None
