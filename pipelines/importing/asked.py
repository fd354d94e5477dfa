"""The import that a person asks for: of files, of a batch that is loaded anew or confirmed, or of a database's rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipelines.importing.imports import import_paths, import_remapped, import_whole
from pipelines.importing.one_batch import import_again, import_confirmed
from pipelines.runs.summary import Summary
from pipelines.session.session import Session


class Asked(NamedTuple):
    """The options that say which import it is. again, copayments: a batch. whole: a feed."""

    again: str | None
    copayments: str | None
    whole: str | None
    remap: bool
    dry_run: bool

    def contradiction(self, places: Sequence[Path | str], why: str | None) -> str | None:
        """Return a sentence about options that exclude each other; None where all go together."""
        again, copayments, whole, remap, dry_run = self
        contradictions = {
            "--again takes a batch alone": again and (places or dry_run or remap),
            "--copayments takes a batch alone": copayments and (places or dry_run or remap or again),
            "--whole takes a feed alone": whole and (places or remap or again or copayments),
            "--remap has no dry run": remap and dry_run,
            "--why goes with --again, --copayments or --remap": why and not (again or copayments or remap),
        }
        return next((sentence for sentence, is_there in contradictions.items() if is_there), None)

    def carry_out(self, session: Session, paths: Sequence[Path]) -> Summary:
        """Import what is asked for, and return the summary. paths: of files and folders; none for the inbox."""
        if self.again:
            return import_again(session, self.again)
        if self.copayments:
            return import_confirmed(session, self.copayments)
        if self.whole:
            return import_whole(session, self.whole, self.dry_run)
        if self.remap:
            return import_remapped(session, paths)
        return import_paths(session, paths, self.dry_run)
