"""Records that share a note: those of a patient and local day, kept together with their intents."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.lease import HeldRight
from pipelines.ledger.verbs import verb

RESPONSE = "QuestionnaireResponse"
GROUPS_A_QUERY = 500
KEEP_MEMBER = """
INSERT INTO shared_note (target, source, key, generation, patient_id, day) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (target, source, key, generation) DO UPDATE SET patient_id = excluded.patient_id, day = excluded.day"""
VERSION = f"""
SELECT member.patient_id, member.day, version.key, batch.batch_id, version.state, version.resource_id,
  version.first_attempt_at
FROM wanted JOIN shared_note AS member
  ON member.target = ? AND member.source = ? AND member.patient_id = wanted.patient_id AND member.day = wanted.day
JOIN stream ON stream.target = member.target AND stream.source = member.source AND stream.resource_type = '{RESPONSE}'
JOIN {{table}} AS version
  ON version.stream_id = stream.stream_id AND version.key = member.key AND version.generation = member.generation
JOIN batch ON batch.batch_no = version.batch_no"""
MEMBERS = f"""
WITH wanted (patient_id, day) AS (VALUES {{groups}})
{VERSION.format(table="record")}
UNION ALL
{VERSION.format(table="version")} AND version.fate = 'standing'
ORDER BY 7, 3"""


class Group(NamedTuple):
    """A patient and a local day (`2026-03-01`), whose responses share a note."""

    patient_id: str
    day: str


class Member(NamedTuple):
    """A record of a group, or its earlier version that is still to be taken back."""

    group: Group
    key: str
    batch_id: str
    state: str
    resource_id: str | None


@verb
def keep_members(
    ledger: LedgerAccess, lease: HeldRight, source: str, members: Sequence[tuple[str, int, Group]]
) -> None:
    """Note that these records, as `(key, generation, group)`, share the note of their group. Raises `LeaseLost`."""
    rows: list[tuple[Any, ...]] = [
        (lease.target, source, key, generation, *group) for key, generation, group in members
    ]
    if rows:
        with ledger.writing(lease):
            ledger.write(KEEP_MEMBER, rows)


def members_of(ledger: LedgerAccess, target: str, source: str, groups: Collection[Group]) -> list[Member]:
    """Return the records of these groups, ordered by first attempt."""
    wanted, found = list(groups), list[Member]()
    for start in range(0, len(wanted), GROUPS_A_QUERY):
        some = wanted[start : start + GROUPS_A_QUERY]
        marks = ", ".join(["(CAST(? AS TEXT), CAST(? AS TEXT))"] * len(some))
        values = [value for group in some for value in group]
        for patient_id, day, *rest, _ in ledger.rows(
            MEMBERS.format(groups=marks), (*values, target, source, target, source)
        ):
            found.append(Member(Group(patient_id, day), *rest))
    return found
