"""A feed's expectations compared with the ledger: find a late file, and a file unlike the earlier ones.

It reads the ledger alone, for the target of the newest run. It gives counts, sums and times, never a row, nor a sum of
few records.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from sqlalchemy import select

from fhir_service.paths import exists, is_file, is_folder, matching
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.terms.schema import DAYS, Expect
from pipelines.home.batch import is_control, printable_name
from pipelines.home.counted import counted
from pipelines.home.preparing import INBOX
from pipelines.home.small_sums import may_be_told
from pipelines.importing.current_problems import loaded_last
from pipelines.ledger import tables as t
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.ledger import Ledger
from pipelines.runs.lines import dollars

LOOKED_AT = 20
"""The number of a feed's last files that are its history."""
LOOKED_FOR = 3 * LOOKED_AT
"""The number of its last files among which these are looked for; the others are corrections."""
ENOUGH = 5
WHOLE = ("update", "supersede")
"""The policies of feeds whose exports may be the whole of their records."""
ANSWERS = "run-1/answers.parquet"
LEAST_SPREAD = Decimal("0.05")
"""The smallest spread, as a share of the median. Without it, one more row than in equal files would be unusual."""


@dataclass
class Deviations:
    """Deviations from a feed's expectations. late: a sentence. unusual: by batch, for the newest finished one."""

    late: str | None = None
    unusual: dict[str, str] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        return [*([self.late] if self.late else []), *(f"{name}: {said}" for name, said in self.unusual.items())]


def unexpected_now(ledger: Ledger, home: Path, feeds: Sequence[Feed], now: datetime) -> dict[str, Deviations]:
    """Return the deviations by feed, for the feeds with expectations."""
    target, kept, waiting = loaded_last(ledger), ledger.batches_in(home), _waiting_in(home / INBOX)
    found = {feed.name: Deviations() for feed in feeds if feed.file.expect}
    for feed in feeds:
        if expect := feed.file.expect:
            batches = exports_of(ledger, kept, target, feed.name)
            mine = found[feed.name]
            still_waits = [at for name, at in waiting.items() if feed.takes(name)]
            mine.late = _late(expect, feed, batches, now, Arrivals(kept, still_waits))
            ended = [row for row in batches if row["state"] == "finished"]
            if ended and (said := "; ".join(_unusual(expect, ended[-1], ended[:-1][-LOOKED_AT:]))):
                mine.unusual[str(ended[-1]["batch_id"])] = said
    return found


def exports_of(ledger: Ledger, kept: HomeBatches, target: str | None, feed: str) -> list[dict[str, Any]]:
    """Return the newest batches of a feed in the order in which they came, without those that correct rejects.

    A correction of which every record was at the target already is known by its first run alone, until it is purged.
    """
    again, batch = t.resubmission.c, t.batch.c
    is_correction = select(again.line).where(again.target == batch.target, again.batch_id == batch.batch_id).exists()
    query = select(batch.batch_id).where(batch.target == target, is_correction)
    corrections = {name for (name,) in ledger.read(query)}
    batches = ledger.batches(target) if target else []
    mine = [row for row in batches if row["feed"] == feed and row["batch_id"] not in corrections]
    newest = sorted(mine, key=lambda row: str(row["received_at"]))[-LOOKED_FOR:]
    kept.bring([str(row["batch_id"]) for row in newest], ANSWERS)
    return [row for row in newest if not exists(kept.folder(str(row["batch_id"])) / ANSWERS)]


def came_at(row: Mapping[str, Any], zone: ZoneInfo) -> datetime:
    """Return the local time at which a batch came."""
    return datetime.fromisoformat(str(row["received_at"])).astimezone(zone)


# -- late


class Arrivals(NamedTuple):
    """Files of a feed that came without a new batch: earlier ones that came again, and when those in the inbox came."""

    kept: HomeBatches
    waiting: Sequence[datetime]

    def again(self, batches: Sequence[Mapping[str, Any]], day: datetime, now: datetime) -> list[str]:
        """Return the names of earlier files that came again since a day's beginning.

        A copy from later than now is of a clock that was ahead.
        """
        copied = [(row["file_name"], self.kept.copied_at(str(row["batch_id"]))) for row in batches]
        return [name for name, at in copied if at and day < at <= now]


def _waiting_in(inbox: Path) -> dict[str, datetime]:
    """Return when each file in the inbox came, by name."""
    found = dict[str, datetime]()
    for path in matching(inbox, "*") if is_folder(inbox) else ():
        if is_file(path) and not is_control(path.name):
            with suppress(FileNotFoundError):
                found[path.name] = datetime.fromtimestamp(path.stat().st_ctime, UTC)
    return found


def _late(
    expect: Expect, feed: Feed, batches: Sequence[Mapping[str, Any]], now: datetime, arrivals: Arrivals
) -> str | None:
    """Return a sentence if no file came since the beginning of the last day on which one was due; else None.

    A file that still waits in the inbox came. An earlier file that came again counts only if the feed takes changes: a
    whole export is like the one before if nothing changed.
    """
    if not expect.by:
        return None
    zone = ZoneInfo(feed.file.timezone)
    due = _last_due(expect, now.astimezone(zone))
    day = datetime.combine(due.date(), time(), zone)
    if any(at >= day for at in (*arrivals.waiting, *(came_at(row, zone) for row in batches[-LOOKED_AT:]))):
        return None
    last = f"; the last came on {came_at(batches[-1], zone):%Y-%m-%d at %H:%M}" if batches else ""
    again = arrivals.again(batches, day, now)
    if again and feed.file.changed in WHOLE:
        return None
    new, only = ("new ", f"; {printable_name(again[-1])} came again") if again else ("", "")
    return f"no {new}file came on {due:%Y-%m-%d}, expected by {expect.by} ({feed.file.timezone}){last}{only}"


def _last_due(expect: Expect, now: datetime) -> datetime:
    """Return the last moment by which a file should have come."""
    hour, minute = map(int, expect.by.split(":"))
    for back in range(8):
        due = datetime.combine(now.date() - timedelta(days=back), time(hour, minute), now.tzinfo)
        if due <= now and DAYS[due.weekday()] in expect.days:
            return due
    raise AssertionError("a week has each day")


# -- unusual


def _unusual(expect: Expect, row: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows, cents = int(row["records"]), int(row["amount_received"])
    if expect.rows and not expect.rows[0] <= rows <= expect.rows[1]:
        yield f"{counted(rows, 'record')}, expected {expect.rows[0]:,} to {expect.rows[1]:,}"
    if expect.amount and not expect.amount[0] * 100 <= cents <= expect.amount[1] * 100:
        bounds = " to ".join(dollars(int(bound * 100)) for bound in expect.amount)
        yield (
            (f"an amount of {dollars(cents)}, expected {bounds}")
            if _may_be_told(row)
            else "an amount outside the expected range"
        )
    if expect.set_aside is not None and rows and share_of(row) > expect.set_aside:
        yield f"{share_of(row):.1%} of the records set aside, expected at most {expect.set_aside:.1%}"
    if expect.history is None or len(before) < ENOUGH:
        return
    for name, value, shown in (("records", rows, "{:,}"), ("amount_received", cents, "")):
        least, most = usual([int(each[name]) for each in before], expect.history)
        if not least <= value <= most:
            told = [shown.format(each) if shown else dollars(each) for each in (value, least, most)]
            what = "records" if shown else "received"
            if shown or all(map(_may_be_told, (row, *before))):
                yield f"{told[0]} {what}, where the last {len(before)} files had {told[1]} to {told[2]}"
            else:
                yield f"an amount outside the range of the last {len(before)} files"


def _may_be_told(row: Mapping[str, Any]) -> bool:
    """True if a file's amount reveals nothing about a person.

    Rejected records may have no amount, and repeats have another record's, so neither of them counts.
    """
    return may_be_told(int(row["accepted"]) - int(row["skipped"]))


def usual(values: Sequence[int], spreads: Decimal) -> tuple[int, int]:
    """Return the bounds around the median of some values, `spreads` median distances away."""
    middle = Decimal(median(values))
    spread = max(Decimal(median([abs(value - middle) for value in values])), abs(middle) * LEAST_SPREAD, Decimal(1))
    return max(0, int(middle - spreads * spread)), int(middle + spreads * spread)


def share_of(row: Mapping[str, Any]) -> Decimal:
    """Return the share of a batch's records that were set aside."""
    return Decimal(int(row["rejected"]) + int(row["refused"])) / max(1, int(row["records"]))


# -- a draft


def draft_expectations(ledger: Ledger, home: Path, feed: Feed) -> Iterator[str]:
    """Yield the lines of `[expect]` as the feed's own files suggest them. A guess is marked DECIDE."""
    exports = exports_of(ledger, ledger.batches_in(home), loaded_last(ledger), feed.name)
    batches = [row for row in exports if row["state"] == "finished"]
    batches, zone = batches[-LOOKED_AT:], ZoneInfo(feed.file.timezone)
    if len(batches) < ENOUGH:
        ended = counted(len(batches), "file has come to its", "files have come to their")
        yield f"# {feed.name}: {ended} end; {ENOUGH} are needed to draft expectations"
        return
    times = [came_at(row, zone) for row in batches]
    yield f"# Drafted from {len(batches)} files, {times[0]:%Y-%m-%d} to {times[-1]:%Y-%m-%d}, for {feed.path.name}."
    yield "[expect]"
    days = [day for number, day in enumerate(DAYS) if any(at.weekday() == number for at in times)]
    quoted = ", ".join(f'"{day}"' for day in days)
    first, last = min(at.time() for at in times), max(at.time() for at in times)
    yield f"days = [{quoted}]  # DECIDE: files came on these days; on which days is a missing file a problem?"
    yield f'by = "{_half_an_hour_after(last)}"  # DECIDE: they came between {first:%H:%M} and {last:%H:%M} ({zone.key})'
    records = [int(row["records"]) for row in batches]
    least, most = usual(records, Decimal(5))
    came = f"{min(records):,} to {max(records):,} came, mostly {int(median(records)):,}"
    yield f"rows = [{least}, {most}]  # DECIDE: {came}"
    if feed.file.kind == "payments":
        cents = [int(row["amount_received"]) for row in batches]
        bounds = ", ".join(dollars(each).replace(",", "") for each in usual(cents, Decimal(5)))
        yield f"amount = [{bounds}]  # DECIDE: {dollars(min(cents))} to {dollars(max(cents))} came"
    share = max(map(share_of, batches))
    most_aside = min(Decimal(1), share * 2 + Decimal("0.02"))
    yield f"set_aside = {most_aside:.2f}  # DECIDE: at most {share:.1%} were set aside"
    yield "# history = 5  # in place of rows and amount: so many spreads around the median of the last 20 files"


def _half_an_hour_after(last: time) -> str:
    minutes = min(23 * 60 + 59, -(-(last.hour * 60 + last.minute + 30) // 30) * 30)
    return f"{minutes // 60:02}:{minutes % 60:02}"
