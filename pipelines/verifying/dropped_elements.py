"""Find elements, or times, that a target accepts and does not keep, from a sample of records of each type.

A target that drops an element drops it in every resource, so a sample shows it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import duckdb

from pipelines.client.client import FhirClient
from pipelines.client.comparison import OWN_TIME, own_time
from pipelines.home.counted import counted

ROWS = 100
"""The number of records of a type in the sample: as many as one search by ids returns."""
ALONE = 20
"""The number of records that are read one by one if the target has no search by ids."""
Sample = dict[tuple[str, str], str]
"""Ids at the target, by key and content hash."""
SAMPLE = """
    SELECT key, content_hash, resource_id FROM ours
    WHERE state IN ('created', 'adopted', 'superseded') AND resource_id IS NOT NULL ORDER BY hash(key) LIMIT $1"""
VALUE = "{}.{} (its value)"
"""The name for a record's own time in a report. Some targets replace it by the request's time, or cut it to its day."""
APART = "SELECT resource_id FROM difference WHERE resource_id IS NOT NULL"


class DroppedElement(NamedTuple):
    """An element that was sent but is in no record of the sample. sent: the number of records that had it."""

    element: str
    sent: int

    def line(self) -> str:
        looked_at = counted(self.sent, "record")
        return f"{self.element}: sent, and not there in any of {looked_at} looked at: does the target keep it?"


def sample_of(db: duckdb.DuckDBPyConnection) -> Sample:
    """Return a sample of the records in `ours`, always the same ones."""
    found = db.execute(SAMPLE, [ROWS]).fetchall()
    return {(key, content): name for key, content, name in found}


def dropped_of(
    db: duckdb.DuckDBPyConnection, client: FhirClient, kind: str, bodies: Mapping[str, dict[str, Any]]
) -> Iterator[DroppedElement]:
    """Yield the elements that no record of the sample has at the target. Raises as reads do.

    bodies: the bodies as sent, by id at the target. Records with a difference are left out, since they were changed
    there.
    """
    apart = {name for (name,) in db.execute(APART).fetchall()}
    left = {name: body for name, body in bodies.items() if name not in apart}
    there = client.read_many(kind, [*left])
    for name in [name for name in left if name not in there][:ALONE]:
        if (body := client.read(kind, name)) is not None:
            there[name] = body
    sent, lost = Counter[str](), Counter[str]()
    for name, body in there.items():
        ours, theirs = {*_elements(kind, left[name])}, {*_elements(kind, body)}
        if when := own_time(kind, left[name]):
            value = VALUE.format(kind, OWN_TIME[kind])
            ours.add(value)
            theirs |= {value} if own_time(kind, body) in (when, None) else set()
        sent.update(ours)
        lost.update(each for each in ours - theirs if each.rpartition(".")[0] not in ours - theirs)
    yield from (DroppedElement(name, sent[name]) for name in sorted(lost) if lost[name] == sent[name])


def _elements(path: str, value: Any) -> Iterator[str]:
    """Yield the paths of all elements that are not empty, without places in lists."""
    if isinstance(value, dict):
        for name, part in value.items():
            if part not in ({}, [], None, "") and name != "resourceType":
                yield f"{path}.{name}"
                yield from _elements(f"{path}.{name}", part)
    elif isinstance(value, list):
        for part in value:
            yield from _elements(path, part)
