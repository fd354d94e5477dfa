"""The options that select an import. Imports nothing, so that a wrong command is told at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class ImportOptions(NamedTuple):
    """The options that select an import. again, copayments, new: a batch. whole: a feed.

    clock_is_right: True to continue the ledger's times from the clock, although the ledger has later ones. reference:
    data that is loaded first.
    """

    again: str | None
    copayments: str | None
    new: str | None
    whole: str | None
    remap: bool
    dry_run: bool
    clock_is_right: bool
    reference: Path | None = None

    def contradiction(self, places: Sequence[Path | str], why: str | None) -> str | None:
        """Return a sentence about options that exclude each other; None if they are compatible."""
        again, copayments, new, whole, remap, dry_run, clock_is_right, reference = self
        alone = places or dry_run or remap
        contradictions = {
            "--again BATCH excludes paths, --dry-run and --remap": again and alone,
            "--copayments BATCH excludes paths, --dry-run, --remap and --again": copayments and (alone or again),
            "--new BATCH excludes paths, --dry-run, --remap, --again and --copayments": new
            and (alone or again or copayments),
            "--whole FEED excludes paths, --remap, --again, --copayments and --new": whole
            and (places or remap or again or copayments or new),
            "--remap and --dry-run exclude each other": remap and dry_run,
            "--clock-is-right and --dry-run exclude each other": clock_is_right and dry_run,
            "--reference and --dry-run exclude each other": reference and dry_run,
            "--why needs one of --again, --copayments, --new, --remap and --clock-is-right": why
            and not (again or copayments or new or remap or clock_is_right),
        }
        return next((sentence for sentence, is_there in contradictions.items() if is_there), None)
