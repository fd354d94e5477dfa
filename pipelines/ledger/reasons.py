"""The present reasons of open rejects: those recorded last, or that a record loaded since was taken back."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from operator import attrgetter

from sqlalchemy import select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.known_rejects import OF_KEY
from pipelines.ledger.rejects import RejectPlace, reasons_of, reject_places
from pipelines.ledger.resubmitted_rows import lines_at
from pipelines.ledger.row_fates import OPEN
from pipelines.ledger.rows import Reason
from pipelines.ledger.standing import how_taken_back, undone_at
from pipelines.ledger.states import LANDED

TAKEN_BACK = "TAKEN-BACK"


def reasons_now(
    ledger: LedgerAccess, target: str, places: Sequence[RejectPlace], last: Mapping[str, list[Reason]]
) -> dict[str, list[Reason]]:
    """Return the present reasons of open rejects, by reject id.

    The earlier reasons no longer hold for a row whose record was loaded and then taken back. They do not hold either
    for a row that was set aside because of other content of its key, if that content was taken back since. They remain
    if another row of the reject still has them. places: the rows of the rejects. last: the reasons for which each
    reject was set aside last.
    """
    now, rows = dict(last), defaultdict[str, int](int)
    for place in places:
        rows[place.reject_id] += 1
    of_keys = {name for name, reasons in last.items() if any(reason.rule_id == OF_KEY for reason in reasons)}
    for name, found in _taken_back(ledger, target, places, of_keys).items():
        now[name] = found if len(found) == rows[name] else [*found, *last.get(name, ())]
    return now


def still_wrong(ledger: LedgerAccess, target: str, places: Sequence[RejectPlace]) -> list[RejectPlace]:
    """Leave out places whose records are at the target, if their reject has other places, which its reasons concern."""
    number = Counter(each.reject_id for each in places)
    several = [each for each in places if number[each.reject_id] > 1]
    there = lines_at(ledger, target, several)
    landed = {each for each in several if any(at.state in LANDED for at in there[each.batch_id, each.line])}
    left = {each.reject_id for each in several if each not in landed}
    return [each for each in places if each not in landed or each.reject_id not in left]


def open_reasons(ledger: LedgerAccess, target: str, batch_id: str) -> dict[str, list[Reason]]:
    """Return the present reasons of the open and resubmitted rejects of a batch, by reject id."""
    places = reject_places(ledger, target, batch_id, OPEN)
    return reasons_now(ledger, target, places, reasons_of(ledger, {each.reject_id for each in places}))


def _taken_back(
    ledger: LedgerAccess, target: str, places: Sequence[RejectPlace], of_keys: Container[str]
) -> dict[str, list[Reason]]:
    found = list(_since_seen(ledger, target, places, of_keys))
    undone, said = undone_at(ledger, target, {batch_id for _, batch_id in found}), defaultdict[str, list[Reason]](list)
    for place, batch_id in found:
        how = how_taken_back(batch_id, undone.get(batch_id))
        message = f"the record was taken back {how}; to load it again, import this row, corrected or unchanged"
        said[place.reject_id].append(Reason(TAKEN_BACK, None, None, message, True, place.line))
    return said


def _since_seen(
    ledger: LedgerAccess, target: str, places: Sequence[RejectPlace], of_keys: Container[str]
) -> Iterator[tuple[RejectPlace, str]]:
    """Yield places whose records were taken back after their rejects were last set aside, each with the records'
    batch.

    of_keys: rejects that were set aside because their keys were known; records of other files count for them too.
    """
    reject, record = t.reject.c, t.record.c
    seen = select(reject.reject_id, reject.last_seen_at).where(reject.target == target)
    seen_at = dict(map(tuple, ledger.read_of(seen, reject.reject_id, sorted({each.reject_id for each in places}))))
    stood, of_stream = lines_at(ledger, target, places), defaultdict[t.Of, list[RejectPlace]](list)
    keys = dict[RejectPlace, set[str]]()
    for place in places:
        own = {place.key} if place.key and place.reject_id in of_keys else set[str]()
        keys[place] = own | {each.key for each in stood[place.batch_id, place.line]}
        of_stream[target, place.source, place.resource_type].append(place)
    for of, some in of_stream.items():
        wanted = sorted({key for place in some for key in keys[place]})
        query = select(record.key, record.batch_id, record.finished_at)
        query = query.where(t.of_stream(record, of), record.state == "undone")
        undone = {each.key: each for each in ledger.read_of(query, record.key, wanted)}
        for place in some:
            here = [undone[key] for key in keys[place] if key in undone]
            since = [each for each in here if each.finished_at > seen_at[place.reject_id]]
            if since:
                yield place, str(max(since, key=attrgetter("finished_at")).batch_id)
