"""The part of an evidence that says if ledger and target agree."""

from typing import Any

from pipelines.verifying.verified import MEANING, Verified

LISTED = 100
"""The most differences of each kind that an evidence lists; it counts all of them."""


def verified_part(verified: Verified) -> dict[str, Any]:
    """Return the result of `verify`, with the first differences of each kind."""
    counts = verified.differences.counts
    listed = [*(each.line() for each in verified.dropped), *verified.differences.first(LISTED)]
    kinds = {kind: {"number": number, "meaning": MEANING[kind]} for kind, number in counts.items()}
    agrees = not set(counts) - {"changed"} and not verified.lost and not verified.dropped
    return {
        "sentence": "ledger and target agree" if agrees else "ledger and target do not agree",
        "agrees": agrees,
        "rows": verified.rows,
        "others": verified.others,
        "without_source": verified.without_source,
        "ledger_cents": verified.ledger_cents,
        "target_cents": verified.target_cents,
        "differences": kinds,
        "listed": listed,
        "lost": verified.lost,
    }
