"""Records whose resources the target has under another id than the ledger knows, as after a move of the server.

They are found by their identifiers. Loaded anew they would be there twice.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pipelines.client.comparison import TAKEN_BACK
from pipelines.client.identifiers import identifier_value, search_token, values_of
from pipelines.client.replies import resources_of
from pipelines.ledger.rows import Outcome
from pipelines.loading.sending import Identity
from pipelines.session.session import Session

ROWS_A_SEARCH = 25


class Moved(Protocol):
    """The parts of a record that matter here."""

    @property
    def source(self) -> str: ...
    @property
    def resource_type(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def state(self) -> str: ...


class Followed(NamedTuple):
    """gone: places of records that the target has under no id. moved: how many it has under another."""

    gone: list[int]
    moved: int


def follow(session: Session, records: Sequence[Moved]) -> Followed:
    """Write down the new ids of records whose old ones are gone. Raises as searches do.

    What the target has more than once, or took back, is counted neither as moved nor as gone.
    """
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at, record in enumerate(records):
        places[record.source, record.resource_type].append(at)
    gone, moved = list[int](), 0
    for (source, kind), of_stream in places.items():
        if not session.step(kind).named or kind not in session.connection.capabilities.identified:
            gone += of_stream
            continue
        for start in range(0, len(of_stream), ROWS_A_SEARCH):
            some = of_stream[start : start + ROWS_A_SEARCH]
            there = _there(session, Identity(source, kind), [records[at] for at in some])
            found = [(records[at], there.get(_value(records[at]), [])) for at in some]
            gone += [at for at, (_, ids) in zip(some, found, strict=True) if not ids]
            outcomes = [Outcome(r.key, r.generation, r.state, ids[0], None) for r, ids in found if len(ids) == 1]
            if outcomes:
                session.ledger.settle(session.target, source, kind, outcomes)
            moved += len(outcomes)
    return Followed(sorted(gone), moved)


def _value(record: Moved) -> str:
    return identifier_value(record.key, record.generation)


def _there(session: Session, identity: Identity, records: Sequence[Moved]) -> Mapping[str, list[str]]:
    """Ids at the target by the identifiers of these records, without what was taken back."""
    asked = ",".join(search_token(identity.system, _value(record)) for record in records)
    path = f"/{identity.resource_type}?_count={2 * len(records)}&identifier={asked}"
    found: dict[str, list[str]] = defaultdict(list)
    for page in session.connection.client.pages_from(path):
        for body in resources_of(page, identity.resource_type):
            if not _is_taken_back(identity.resource_type, body):
                for value in values_of(identity.system, body):
                    found[str(value)].append(str(body["id"]))
    return found


def _is_taken_back(kind: str, body: Mapping[str, Any]) -> bool:
    return kind in TAKEN_BACK and body.get("status") == TAKEN_BACK[kind]
