"""Compare source, ledger and a store in PostgreSQL: to the row and the cent, and the order within each lane."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import psycopg

from tests.faults.many_exports import TYPES, Exports
from tests.faults.world import content
from tests.support.commands import OUTCOMES

TABLES = {"PaymentNotice": "payment_notice", "Task": "task", "QuestionnaireResponse": "questionnaire_response"}
RECORDS = """
    SELECT record.key, record.state, record.resource_id FROM record JOIN stream USING (stream_id)
    WHERE stream.resource_type = %s"""


def disagreements(exports: Exports, store: str, ledger: str) -> list[str]:
    """Return what does not agree, with counts of each kind; nothing when all is well. store, ledger: for psycopg."""
    with psycopg.connect(store) as of_store, psycopg.connect(ledger) as of_ledger:
        wrong = [each for kind in TYPES.values() for each in _of_type(kind, exports, of_store, of_ledger)]
        return wrong + list(_of_batches(exports, of_ledger))


def _of_type(kind: str, exports: Exports, store: Any, ledger: Any) -> Iterator[str]:
    wanted = {key: said for key, said in exports.wanted.items() if said[0] == kind}
    there = dict(store.execute(f"SELECT id, body FROM {TABLES[kind]}").fetchall())
    records = {key: (state, found) for key, state, found in ledger.execute(RECORDS, [kind])}
    if odd := records.keys() ^ wanted.keys():
        yield f"{kind}: {len(odd)} keys are not in both of source and ledger"
    if left := [key for key, (state, _) in records.items() if state not in ("created", "adopted")]:
        yield f"{kind}: {len(left)} records are neither created nor adopted"
    ids = {found for _, found in records.values()}
    if len(ids) < len(records):
        yield f"{kind}: {len(records) - len(ids)} resources are two records'"
    if ids ^ there.keys():
        yield f"{kind}: {len(there.keys() - ids)} resources are no record's, and {len(ids - there.keys())} are missing"
    other = [key for key, said in wanted.items() if _said(there, records.get(key)) != said]
    if other:
        yield f"{kind}: {len(other)} records say something else at the store"
    if turned := out_of_order(exports.lanes, {key: found for key, (_, found) in records.items()}):
        yield f"{kind}: {turned} records came before an earlier one of their file and lane"


def _said(there: Mapping[str, str], record: tuple[str, str] | None) -> tuple[Any, ...] | None:
    body = record and there.get(record[1])
    return content(json.loads(body)) if body else None


def out_of_order(lanes: Mapping[str, str], ids: Mapping[str, str | None]) -> int:
    """Count records that were made before an earlier one of their file and lane: ids tell the order."""
    came: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for key, found in ids.items():
        file, _, number = key.partition(":")
        came[file, lanes.get(key, "")].append((found or "", int(number)))
    orders = ([number for _, number in sorted(some)] for some in came.values())
    return sum(one > other for order in orders for one, other in pairwise(order))


def _of_batches(exports: Exports, ledger: Any) -> Iterator[str]:
    columns = ["state", "records", "accepted", "rejected", *OUTCOMES]
    found = ledger.execute(f"SELECT {', '.join(columns)} FROM batch").fetchall()
    if len(found) != len(exports.files):
        yield f"{len(found)} batches of {len(exports.files)} files"
    for batch in (dict(zip(columns, row, strict=True)) for row in found):
        came_to = sum(batch[name] for name in OUTCOMES)
        if not (batch["state"] == "finished" and batch["records"] == batch["accepted"] == came_to):
            yield f"a batch does not close: {batch}"
