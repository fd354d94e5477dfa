"""Reasons to stop a whole file: control totals that differ, or more rejects than the feed allows."""

import codecs
from decimal import Decimal
from difflib import get_close_matches

from fhir_service.interface.json_text import Malformed, parse_json
from fhir_service.paths import exists
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import ReceivedFile, control_of
from pipelines.home.counted import counted, word_for
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.sums import total_said

REASONS_TOLD = 5
MOST_DIGITS = 25
CLOSE = 0.7
TOTALS = {"rows", "amount"}


def control_mismatch(received: ReceivedFile, found: ValidationResult) -> str | None:
    """Return a sentence on how the file differs from its control totals; None if it does not.

    The sentence has no amount, since it goes to logs and alerts, and the difference may be what a person paid.
    """
    control = control_of(received.path_in_batch)
    if not exists(control):
        return None
    try:
        totals = parse_json(control.read_bytes().removeprefix(codecs.BOM_UTF8))
        meant = next(filter(None, map(_meant, totals.keys() - TOTALS)), None)
        rows, amount = _total(totals.get("rows")), _total(totals.get("amount"))
    except (Malformed, AttributeError, TypeError, ArithmeticError, ValueError):
        rows = amount = meant = None
    if rows is None and amount is None:
        return f'{control.name} is not a JSON object of the form {{"rows": 1, "amount": "0.00"}}'
    if meant:
        return f"{control.name} has a total with a wrong name; did you mean {meant}?"
    if rows is not None and rows != found.rows:
        return f"{control.name} says {rows.normalize():f} {word_for(rows, 'row')}, the file has {found.rows}"
    if amount is not None and amount * 100 != found.amount_received:
        said = total_said(found)
        return f"{control.name} says a different amount than the rows of the file have{f'; {said}' if said else ''}"
    return None


def has_amount_total(received: ReceivedFile) -> bool:
    """True if a control file gives an amount, so that a different sum stops the file."""
    try:
        return (
            parse_json(control_of(received.path_in_batch).read_bytes().removeprefix(codecs.BOM_UTF8)).get("amount")
            is not None
        )
    except (OSError, Malformed, AttributeError, ArithmeticError):
        return False


def _meant(name: str) -> str | None:
    """Return the total that a misspelled name means (`Rows`, `amuont`, `amount_usd`); None for other names."""
    close = get_close_matches(name.lower(), TOTALS, 1, CLOSE)
    return close[0] if close else next((total for total in TOTALS if total in name.lower()), None)


def _total(said: object) -> Decimal | None:
    """Return a number given as number or text; None if there is none. Raises ArithmeticError, TypeError, ValueError."""
    if said is None:
        return None
    if isinstance(said, bool) or not isinstance(said, int | str | Decimal):
        raise TypeError
    found = Decimal(said)
    if not found.is_finite() or found.adjusted() > MOST_DIGITS:
        raise ValueError
    return found


def over_limit(feed: Feed, found: ValidationResult) -> str | None:
    """Return a sentence with the most frequent reasons if more records are rejected than the feed allows; else None."""
    limit = feed.file.max_rejects
    if limit is None:
        return None
    most = int(limit * found.records) if isinstance(limit, Decimal) and limit < 1 else int(limit)
    if found.rejected <= most:
        return None
    reasons = ", ".join(f"{rule} ({times})" for rule, times in found.reasons.most_common(REASONS_TOLD))
    allowed = f"the feed {feed.name} allows {most}"
    records = counted(found.records, "record is", "records are")
    return f"{found.rejected:,} of {records} rejected, {allowed}; most often for {reasons}"
