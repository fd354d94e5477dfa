"""The page of an evidence: one file that loads nothing from elsewhere, and prints well."""

import hashlib
from collections import defaultdict
from pathlib import Path
from typing import Any

from pipelines.reports.document import document

TEMPLATES = Path(__file__).parent / "templates"
MOST_ROWS = 120
"""Rows of one feed's totals. More days are shown by month, and more months by year; the JSON has each day."""
MOST_FILES = 500
"""Files, with their runs, that a page shows; the JSON has all."""
SIGNERS = ("For the practice", "For whoever ran the import", "Checked by hand")
_SIDES = ("export", "expected", "ledger", "target")


def page_of(content: dict[str, Any], written: bytes) -> str:
    """Return the HTML page of an evidence. written: its JSON as it is written, whose hash the page names."""
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
    """Return the rows of a feed's table: its days, or its months or years where there are too many."""
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
    """Return the sums of the days of a period. A patient of several days is counted on each of them: left out."""
    sides = {
        side: {name: sum(day[side][name] for day in days) for name in ("records", "cents")} | {"patients": None}
        for side in _SIDES
    }
    return {"day": period, **sides, "agrees": all(day["agrees"] for day in days)}
