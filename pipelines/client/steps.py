"""The steps by which rows reach a target: each is one way to send. The target's statement decides it for each type.

The steps are: batch with conditional create, transaction with conditional create, single conditional creates, single
creates with look-up by identifier, and the bare interface.
"""

from typing import NamedTuple

from pipelines.client.capabilities import Capabilities


class Step(NamedTuple):
    """A way to send rows.

    bundle: the type of the bundles, None for one request for each row. named: rows have an identifier, by which the
    target can be asked for them. conditional: a create has that identifier as its condition. repeats: an unclear
    create may be sent again at once, since two requests with one condition never both create.
    """

    name: str
    bundle: str | None = None
    named: bool = True
    conditional: bool = True
    repeats: bool = False

    @property
    def below(self) -> "Step":
        """The step to take if the target does not do what this one needs."""
        return SINGLE._replace(repeats=self.repeats) if self.bundle else LOOK_UP


BATCH = Step("batch", "batch")
FREE_OF_RACES = BATCH._replace(repeats=True)
"""The step of the bundled service."""
TRANSACTION = Step("transaction", "transaction")
SINGLE = Step("conditional")
LOOK_UP = Step("look-up", conditional=False)
BARE = Step("bare", named=False, conditional=False)

DOES: dict[str, str] = {
    "batch": "conditional creates in batches of up to {rows} rows",
    "transaction": "conditional creates in transactions of up to {rows} rows; a refused transaction is split in two",
    "conditional": "one conditional create for each row, several at once",
    "look-up": "one create for each row, with its identifier, which is looked up before each create and each repeat",
    "bare": "one create for each row; the patient's resources are read before, and rows in doubt are looked up by"
    " content",
}
"""Descriptions of each step. rows: the most rows in a bundle."""

RISK: dict[str, str] = {
    "free of races": "none: a repeated create finds the first one",
    "conditional": "none by this import, which looks up and waits before it repeats; some targets double rows if a"
    " network delivers a request twice at once, or if a second home sends the same rows at the same time (verify names"
    " them)",
    "look-up": "a payment in doubt that is not found waits for a person; rows are doubled if a second home sends the"
    " same rows at the same time (verify names them)",
    "bare": "rows with equal content cannot be told apart, so some rows in doubt wait for a person; rows are doubled if"
    " a second home sends the same rows",
}
"""The risk that remains at a step."""


def step_for(capabilities: Capabilities, resource_type: str) -> Step:
    """Return the step for rows of a type. Only the bundled service is known to create without races."""
    if resource_type in capabilities.conditional:
        step = BATCH if capabilities.batch else TRANSACTION if capabilities.transaction else SINGLE
        return step._replace(repeats=capabilities.store_id is not None)
    return LOOK_UP if resource_type in capabilities.identified else BARE


def risk_of(step: Step) -> str:
    """Return the sentence about the risk that remains at a step."""
    return RISK["free of races" if step.repeats else "conditional" if step.conditional else step.name]
