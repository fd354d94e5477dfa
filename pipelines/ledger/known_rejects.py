"""A person's knowledge of a reject's record: the exported id of the reject contains the moment up to which it reaches.

A row is put in without that knowledge if its reject, when exported, did not say that the record is known.
"""

from collections.abc import Collection
from datetime import UTC, datetime

from pipelines.ledger.clock import MOST_BEHIND
from pipelines.ledger.lease import utc_text

OF_OTHERS = "LEDGER-07"
OF_KEY = "LEDGER-08"
TOLD = (OF_OTHERS, OF_KEY)
"""Rules that set a row aside because its record is known. A person who puts the row in after that means another
record.

The first rule tells the fate of other rejects, the second only that the key is known.
"""
NEVER = "0000-00-00T00:00:00.000000Z"
"""The moment in the id of a reject that says only that its key is known."""


def marked_id(reject_id: str, rules: Collection[str], at: str) -> str:
    """Return the id of a reject for its export. at: the moment (UTC text) when the reject got its reasons."""
    if told := [at if rule == OF_OTHERS else NEVER for rule in rules if rule in TOLD]:
        return f"{reject_id}-{''.join(filter(str.isdigit, max(told)))}"
    return reject_id


def parted_id(name: str) -> tuple[str, str]:
    """Return the id of a reject, and the moment (UTC text, or empty) up to which its record was known to a person.

    A moment more than `MOST_BEHIND` in the future is ignored, since nobody can know it. A smaller lead is kept: a
    ledger's times may be ahead of a clock that was set back.
    """
    reject_id, _, at = name.partition("-")
    day, time = f"{at[:4]}-{at[4:6]}-{at[6:8]}", f"{at[8:10]}:{at[10:12]}:{at[12:14]}.{at[14:]}"
    until = f"{day}T{time}Z" if at else ""
    return reject_id, until if until <= utc_text(datetime.now(UTC) + MOST_BEHIND) else ""
