"""Read resources of the target by their ids."""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

from pipelines.client.client import PAGE, FhirClient
from pipelines.client.replies import NoResult, UnknownOutcome
from pipelines.client.threads import threads
from pipelines.session.session import Session

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
