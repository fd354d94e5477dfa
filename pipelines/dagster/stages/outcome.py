"""The outcome of one stage for the batches of a Dagster run: a batch that fails does not stop the others."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg

from pipelines.dagster import metadata

UNDER_WAY, FINISHED = "running", "finished"
NOTHING_SENT = ("stopped", "failed")


@dataclass
class Outcome:
    """The result of a stage. done: metadata of each batch that succeeded. failed: a sentence for each that did not.

    retryable: at least one failed batch may succeed if tried again.
    """

    done: dict[str, metadata.Metadata] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    retryable: bool = False

    def fail(self, batch_id: str, sentence: str, retryable: bool = False) -> None:
        self.failed[batch_id] = sentence
        self.retryable |= retryable


def failure(ended: Mapping[str, str], outcome: Outcome) -> dg.Failure:
    """Return the failure of a stage. ended: a sentence for each batch that does not go on."""
    files = {batch_id: f" ({about['file']})" for batch_id, about in outcome.done.items() if about.get("file")}
    sentences = "; ".join(f"{batch_id}{files.get(batch_id, '')}: {sentence}" for batch_id, sentence in ended.items())
    counts = {"batches_failed": len(ended), "batches_done": len(outcome.done.keys() - ended.keys())}
    return dg.Failure(sentences, counts, allow_retries=outcome.retryable)
