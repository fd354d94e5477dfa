"""Records whose resources the target has under another id than the ledger knows, as after a move of the server.

They are found by their identifiers. Loaded anew they would be there twice.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pipelines.client.identifiers import values_of
from pipelines.ledger.rows import Outcome
from pipelines.loading.identity import Identity
from pipelines.loading.ownership import VALUES_A_SEARCH, Named, Owner, places, value_of
from pipelines.session.reading import reading
from pipelines.session.session import Session


class Moved(Named, Protocol):
    """A record with its source and its state."""

    @property
    def source(self) -> str: ...
    @property
    def resource_type(self) -> str: ...
    @property
    def state(self) -> str: ...


class Followed(NamedTuple):
    """Places of records, by how often the target has their identifiers: never, once, or more than once.

    moved: the new ids by place.
    """

    gone: list[int]
    moved: dict[int, str]
    several: list[int]

    def lines(self) -> Iterator[str]:
        """The sentences for a user."""
        if self.moved:
            yield f"{len(self.moved):,} are there under another id: the ledger has that id now"
        if self.several:
            yield f"{len(self.several):,} are there several times: they stay; chartferry verify names them"


def follow(session: Session, records: Sequence[Moved]) -> Followed:
    """Write down the new ids of records whose old ones are gone. Raises `TargetUnusable`.

    A resource that was taken back in the chart has moved like any other.
    """
    of_streams: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at, record in enumerate(records):
        of_streams[record.source, record.resource_type].append(at)
    followed = Followed([], {}, [])
    for (source, kind), of_stream in of_streams.items():
        if not session.shows_names(kind):
            followed.gone.extend(of_stream)
            continue
        for start in range(0, len(of_stream), VALUES_A_SEARCH):
            some = of_stream[start : start + VALUES_A_SEARCH]
            with reading(kind):
                values = [value_of(records[at]) for at in some]
                there = places(session.connection.client, Identity(source, kind), values)
            outcomes = []
            for at in some:
                ids, record = there[value_of(records[at])], records[at]
                if not ids:
                    followed.gone.append(at)
                elif len(ids) > 1:
                    followed.several.append(at)
                else:
                    followed.moved[at] = ids[0]
                    outcomes.append(Outcome(record.key, record.generation, record.state, ids[0], None))
            if outcomes:
                session.ledger.settle(session.target, source, kind, outcomes)
    followed.gone.sort()
    return followed


def owner_of(session: Session, source: str, kind: str) -> Owner:
    """The owner of the resources that a source has at the target."""
    return Owner.at(session.connection.capabilities, session.target, Identity(source, kind))


def is_other(session: Session, record: Moved, body: Mapping[str, Any]) -> bool:
    """True if a resource does not have the identifier that the record was sent with."""
    if not session.shows_names(record.resource_type):
        return False
    return value_of(record) not in values_of(Identity(record.source, record.resource_type).system, body)


def is_unclear(session: Session, record: Moved, body: Mapping[str, Any]) -> bool:
    """True if a resource has no identifier of the source at all: the record may have been sent without one."""
    system = Identity(record.source, record.resource_type).system
    return is_other(session, record, body) and not values_of(system, body)
