"""The outcome of one stage for the batches of a Dagster run: a batch that fails does not stop the others."""

from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from pipelines.dagster import metadata
from pipelines.ledger.states import CUT_OFF, NOT_LOADED

NOTHING_SENT = (*NOT_LOADED, CUT_OFF)
"""States of runs that have ended and sent nothing."""
FAILED_BATCHES = "failed_batches"
NO_FILE = "the file is no longer in the inbox, or its batch was purged"


@dataclass
class StageOutcome:
    """The result of a stage.

    * done: metadata of each batch that succeeded.
    * failed: a sentence for each batch that failed.
    * held: why batches that succeeded do not continue.
    * facts: the input of the stage's checks, by batch.
    * retryable: True if at least one failed batch may succeed if tried again.
    """

    done: dict[str, metadata.Metadata] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    retryable: bool = False

    @property
    def ended(self) -> dict[str, str]:
        """Return a sentence for each batch that does not continue."""
        return {**self.failed, **self.held}

    def fail(self, batch_id: str, sentence: str, retryable: bool = False) -> None:
        self.failed[batch_id] = sentence
        self.retryable |= retryable


def failure(outcome: StageOutcome) -> dg.Failure:
    """Return the failure of a stage."""
    ended = outcome.ended
    files = {batch_id: f" ({about['file']})" for batch_id, about in outcome.done.items() if about.get("file")}
    sentences = "; ".join(f"{batch_id}{files.get(batch_id, '')}: {sentence}" for batch_id, sentence in ended.items())
    counts = {"batches_failed": len(ended), "batches_done": len(set(outcome.done).difference(ended))}
    return dg.Failure(sentences, {**counts, FAILED_BATCHES: " ".join(ended)}, allow_retries=outcome.retryable)


def why_failed(instance: dg.DagsterInstance, run_id: str) -> tuple[list[str], str]:
    """Return the batches that failed a run, and the sentences of its failures.

    No batch is returned if the run failed for another reason too. Only failures that this program described have a
    sentence.
    """
    logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    told = [each.get_dagster_event().step_failure_data.user_failure_data for each in logs]
    said = "; ".join(each.description for each in told if each and each.description)
    of_batches = [each.metadata.get(FAILED_BATCHES) if each else None for each in told]
    return [name for each in of_batches if each for name in str(each.value).split()] if all(of_batches) else [], said
