"""The sentence that a page gets when a load ended after it was made: its numbers are older than that.

A publication may be a while off, or fail. Until one takes the page's place, its reader is told.
"""

import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pipelines.home.files import lock_now, replace_whole
from pipelines.ledger.ledger import Ledger
from pipelines.reports.publication import said_at

PAGE, LOCK = "report.html", ".lock"
READ_ONLY = 0o444
PLACE = "<!-- newer -->"
_RUNS = re.compile(r'<meta name="runs" content="(\d+)">')


def tell_newer(home: Path, ledger: Ledger, target: str) -> None:
    """Say on the page of the last publication that loads have ended since, unless it says so or there are none.

    While a publication is under way nothing is done: it calls this itself at its end. A full disk is no fault here.
    """
    folder = home / "published"
    with suppress(OSError):
        if PLACE not in (folder / PAGE).read_text(encoding="utf-8"):
            return
        with lock_now(folder / LOCK) as is_mine:
            if is_mine:
                _tell(folder, ledger, target)


def _tell(folder: Path, ledger: Ledger, target: str) -> None:
    text = (folder / PAGE).read_text(encoding="utf-8")
    shown, (runs, last) = _RUNS.search(text), ledger.runs_ended(target)
    if shown is None or last is None or runs <= int(shown[1]):
        return
    at = said_at(datetime.fromisoformat(last))
    said = f'<p class="newer">These numbers are older than the last load: another one ended on {at}.</p>'
    part = folder / f".reports.{PAGE}"
    part.write_text(text.replace(PLACE, said, 1), encoding="utf-8")
    replace_whole(part, folder / PAGE, READ_ONLY)
