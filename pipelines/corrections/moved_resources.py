"""Records whose resources the target has under another id than the ledger knows, as after a move of the server.

They are found by their identifiers. If they were loaded anew, the target would have them twice.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pipelines.client.comparison import patient_of
from pipelines.client.identifiers import VALUES_A_SEARCH
from pipelines.home.counted import counted, word_for
from pipelines.ledger.former_versions import FormerVersion, earlier_versions
from pipelines.ledger.rows import Outcome, RecordRow
from pipelines.loading.ownership import NOT_NAMED, KnownResource, Owner, places, value_of
from pipelines.loading.row import Identity
from pipelines.session.needed_reads import reading
from pipelines.session.session import Session


class FollowedRecords(NamedTuple):
    """Places of records, by the number of resources with their identifiers: none, one, or several.

    moved: the new ids by place.
    """

    gone: list[int]
    moved: dict[int, str]
    several: list[int]

    def lines(self) -> Iterator[str]:
        """Yield the sentences for a user."""
        if self.moved:
            yield (
                f"{counted(len(self.moved), 'resource has', 'resources have')} another id at the target now: the"
                " ledger has taken over the new id"
            )
        if self.several:
            several, them = (
                counted(len(self.several), "record is", "records are"),
                word_for(len(self.several), "it", "them"),
            )
            yield f"{several} at the target several times, and nothing was changed; chartferry verify names {them}"


def follow(session: Session, records: Sequence[RecordRow]) -> FollowedRecords:
    """Note the new ids of records of one source and type whose old ids are gone. Raises `TargetUnusable`.

    A resource that was taken back in the chart is followed like any other. Without identifiers, a record counts as
    there if its resource from before an earlier reload exists again.
    """
    followed = FollowedRecords([], {}, [])
    for start in range(0, len(records), VALUES_A_SEARCH):
        some = records[start : start + VALUES_A_SEARCH]
        source, kind = some[0].source, some[0].resource_type
        look = _by_name if session.shows_names(kind) else _by_former_ids
        with reading(kind):
            there = look(session, source, kind, some)
        outcomes = []
        for at, (record, ids) in enumerate(zip(some, there, strict=True), start):
            if not ids:
                followed.gone.append(at)
            elif len(ids) > 1:
                followed.several.append(at)
            else:
                followed.moved[at] = ids[0]
                outcomes.append(Outcome(record.key, record.generation, record.state, ids[0], None))
        if outcomes:
            session.ledger.settle(session.target, source, kind, outcomes)
    return followed


def _by_name(session: Session, source: str, kind: str, records: Sequence[RecordRow]) -> list[Sequence[str]]:
    there = places(session.connection.client, Identity(source, kind), list(map(value_of, records)))
    return [there[value_of(record)] for record in records]


def _by_former_ids(session: Session, source: str, kind: str, records: Sequence[RecordRow]) -> list[Sequence[str]]:
    gone = earlier_versions(session.ledger, session.target, source, kind, [record.key for record in records], "gone")
    had: dict[tuple[str, int], dict[str, str | None]] = defaultdict(dict)
    for version in gone:
        had[version.key, version.generation][str(version.resource_id)] = version.patient_id

    def is_there(name: str, patient: str | None) -> bool:
        """True if the resource with this id is the patient's. An id may be another resource's now."""
        body = session.connection.client.read(kind, name)
        return body is not None and patient_of(body) == patient

    ids = (had[record.key, record.generation] for record in records)
    return [[name for name, patient in each.items() if is_there(name, patient)] for each in ids]


def owner_of(session: Session, source: str, kind: str) -> Owner:
    """Return the owner of the resources that a source has at the target."""
    return Owner.at(session.connection.capabilities, session.target, Identity(source, kind))


def why_not(
    session: Session, record: RecordRow | FormerVersion, body: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Return why a resource as read is not a record's by its identifier, as `Owner.why_not` does; None if it is."""
    made = KnownResource(str(record.resource_id), value_of(record), patients=())
    return owner_of(session, record.source, record.resource_type).why_not(made, body)


def is_there(session: Session, record: RecordRow) -> bool | None:
    """True if a record's resource is at the target; None if it is unclear, since what is there has no identifier."""
    body = session.connection.client.read(record.resource_type, str(record.resource_id))
    why = why_not(session, record, body)
    return None if why is NOT_NAMED else why is None
