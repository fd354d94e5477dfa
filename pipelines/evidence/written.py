"""An evidence in its written form: its JSON and its page, which is signed."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.evidence.totals import FATES
from pipelines.home.counted import counted
from pipelines.home.files import write_whole
from pipelines.reports.document import document
from pipelines.runs.lines import dollars

TEMPLATES = Path(__file__).parent / "templates"
MOST_ROWS = 120
"""The most rows of one feed's totals. More days are shown by month, more months by year; the JSON has each day."""
MOST_FILES = 500
"""The most files, with their runs, that a page shows; the JSON has all."""
SIGNERS = ("For the practice", "For the person who ran the import", "Checked by hand")
_SIDES = ("export", "expected", "ledger", "target")


def page_of(content: dict[str, Any], written: bytes) -> str:
    """Return the HTML page of an evidence. written: the bytes of its JSON, whose hash the page shows."""
    return document(
        "evidence.html",
        TEMPLATES,
        ["evidence.css"],
        document_hash=hashlib.sha256(written).hexdigest(),
        signers=SIGNERS,
        most_files=MOST_FILES,
        periods={feed["feed"]: _periods(content, feed["feed"]) for feed in content["feeds"]},
        has_money={feed["feed"]: any(feed[side]["cents"] for side in _SIDES) for feed in content["feeds"]},
        **content,
    )


def _periods(content: dict[str, Any], feed: str) -> dict[str, Any]:
    """Return the rows of a feed's table: its days, or its months or years if there are too many."""
    days = [day for day in content["days"] if day["feed"] == feed]
    if len(days) <= MOST_ROWS:
        return {"by": "day", "rows": days}
    months = _grouped(days, len("2026-01"))
    if len(months) <= MOST_ROWS:
        return {"by": "month", "rows": months}
    return {"by": "year", "rows": _grouped(days, len("2026"))}


def _grouped(days: list[dict[str, Any]], length: int) -> list[dict[str, Any]]:
    """Return the sums of the days whose dates begin alike."""
    found: defaultdict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for day in days:
        found[day["day"] and day["day"][:length]].append(day)
    return [_sums(period, days) for period, days in found.items()]


def _sums(period: str | None, days: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of a period's days, without patients: a patient of several days is counted on each of them."""
    sides = {
        side: {name: sum(day[side][name] for day in days) for name in ("records", "cents")} | {"patients": None}
        for side in _SIDES
    }
    return {"day": period, **sides, "agrees": all(day["agrees"] for day in days)}


FOLDER = "evidence"


@dataclass(frozen=True)
class Evidence:
    """A written evidence: its content, and the paths of its page and its JSON."""

    content: dict[str, Any]
    page: Path
    document: Path

    @property
    def exit_code(self) -> int:
        return int(self.content["exit_code"])

    def as_json(self) -> dict[str, Any]:
        return {**self.content, "page": str(self.page), "document": str(self.document)}

    def lines(self) -> Iterator[str]:
        for feed in self.content["feeds"]:
            yield f"{feed['feed']}: {_sides(feed)}: {'they agree' if feed['agrees'] else 'THEY DO NOT AGREE'}"
            for fate, apart in feed["apart"].items():
                yield f"{feed['feed']}: {counted(apart['records'], 'record')} {fate}: {FATES[fate]}"
        if not self.content["feeds"]:
            yield "no records of these batches are here"
        for without in self.content["without_rows"]:
            purged = counted(without["ledger_records"], "record of a purged file is", "records of purged files are")
            yield f"{without['feed']}: {purged} compared with the ledger alone"
        for name in self.content["damaged"]:
            yield f"{name}: the file in its batch is not the one that was received"
        for name in self.content["failed"]:
            yield f"{name}: its file could not be read, and no record of it is counted (chartferry status {name})"
        for name in self.content["failed_later"]:
            yield f"{name}: its last run failed; the records that an earlier run read are counted"
        for name in self.content["unread"]:
            yield f"{name}: it was not read to its end, and no record of it is counted (chartferry import)"
        for name in self.content["missing"]:
            yield f"{name}: its file is no longer here, and no purge of it is on record"
        yield f"verify: {self.content['verify']['sentence']}"
        sample = self.content["sample"]
        yield f"sample: {counted(len(sample['records']), 'record')}, seed {sample['seed']}"
        yield f"to sign: {self.page}"
        yield f"as JSON: {self.document}"


def _sides(feed: dict[str, Any]) -> str:
    sides = (f"{name} {_side(feed[name])}" for name in ("export", "ledger", "target"))
    return ", ".join(sides)


def _side(side: dict[str, int]) -> str:
    return counted(side["records"], "record") + (f" ({dollars(side['cents'])})" if side["cents"] else "")


def write_evidence(home: Path, content: dict[str, Any]) -> Evidence:
    """Write the JSON, and the page with the hash of the JSON. Both files are read-only."""
    folder = home / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    name = content["made_at"].replace(":", "")
    document = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
    page = page_of(content, document).encode()
    for suffix, written in ((".json", document), (".html", page)):
        with suppress(FileNotFoundError):
            (folder / f"evidence-{name}{suffix}").unlink()
        write_whole(folder / f"evidence-{name}{suffix}", written, 0o400)
    return Evidence(content, folder / f"evidence-{name}.html", folder / f"evidence-{name}.json")
