"""The sentence on a published page that a load has ended since, so that the page's numbers are old.

The next publication may come much later, or fail. Until one replaces the page, its reader sees the sentence.
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
    """Add the sentence to the page of the last publication if a load ended since, unless the page has it already.

    Do nothing while a publication is under way: it calls this function itself at its end. A full disk raises nothing.
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
