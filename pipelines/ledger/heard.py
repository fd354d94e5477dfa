"""A person's knowledge of a reject's record: the id, as exported, says up to which moment it reaches.

A row whose reject did not say that its record is known when it was exported is put in without knowing it.
"""

from collections.abc import Collection
from datetime import UTC, datetime

from pipelines.ledger.clock import MOST_BEHIND
from pipelines.ledger.lease import utc_text

OF_OTHERS = "LEDGER-07"
OF_KEY = "LEDGER-08"
TOLD = (OF_OTHERS, OF_KEY)
"""Rules by which a row is set aside as its record is known: who puts it in after that means another one. The first says
what has become of other rejects, the second only that its key is known."""
NEVER = "0000-00-00T00:00:00.000000Z"
"""The moment in the id of a reject that says only that its key is known."""


def marked(reject_id: str, rules: Collection[str], at: str) -> str:
    """Return the id of a reject as it is exported; at: when it was told its reasons (UTC text)."""
    if told := [at if rule == OF_OTHERS else NEVER for rule in rules if rule in TOLD]:
        return f"{reject_id}-{''.join(filter(str.isdigit, max(told)))}"
    return reject_id


def parted(name: str) -> tuple[str, str]:
    """Return the id of a reject, and the moment up to which is known what is there (UTC text, or empty). Of what is yet
    to come nobody knows; a ledger's times may be ahead of a clock that was set back.
    """
    reject_id, _, at = name.partition("-")
    day, time = f"{at[:4]}-{at[4:6]}-{at[6:8]}", f"{at[8:10]}:{at[10:12]}:{at[12:14]}.{at[14:]}"
    until = f"{day}T{time}Z" if at else ""
    return reject_id, until if until <= utc_text(datetime.now(UTC) + MOST_BEHIND) else ""
