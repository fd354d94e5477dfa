"""The assets of a feed: received, validated, loaded. A partition is a batch; a run takes one or several, in order.

They call what the command line calls, so that both make the same ledger and folders. A file that fails holds up only
itself: the others of its run go on, and the run ends as failed.
"""

import hashlib
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import dagster as dg

from pipelines.batch import Unreadable
from pipelines.checks import AFTER_LOAD, AFTER_VALIDATE, LoadedBatch, Statement
from pipelines.feeds.catalog import Feed
from pipelines.feeds.marks import marked_form
from pipelines.ledger_tables import LedgerError
from pipelines.orchestration import metadata
from pipelines.orchestration.handover import hand_over, newest
from pipelines.orchestration.instance import FEED_TAG, LOAD_POOL
from pipelines.orchestration.workplace import RESOURCE_KEY, place_of, told_without_data
from pipelines.pipeline import (
    Result,
    Run,
    begin,
    end,
    end_without_load,
    load_run,
    rules_version,
    run_batch,
    software_version,
    validate_run,
)
from pipelines.receive import receive
from pipelines.session import Session, received_before
from pipelines.validate import ACCEPTED, Validated

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

OWNERS = ["team:data-engineering"]
AGAIN = dg.RetryPolicy(max_retries=2, delay=20, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
UNDER_WAY, FINISHED = "running", "finished"
NOTHING_SENT = ("stopped", "failed")


@dataclass
class Outcome:
    """What a stage made of the batches of a run: metadata of those that went well, a sentence for those that did not.

    retryable: at least one of them may go well when tried again.
    """

    done: dict[str, metadata.Metadata] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    retryable: bool = False

    def fail(self, batch_id: str, sentence: str, retryable: bool = False) -> None:
        self.failed[batch_id] = sentence
        self.retryable |= retryable

    def failure(self) -> dg.Failure:
        sentences = "; ".join(f"{batch_id}: {sentence}" for batch_id, sentence in self.failed.items())
        counts = {"batches_failed": len(self.failed), "batches_done": len(self.done)}
        return dg.Failure(sentences, counts, allow_retries=self.retryable)


def batches_of(feed: Feed) -> dg.DynamicPartitionsDefinition:
    """The batches of a feed, in the order in which their files were found."""
    return dg.DynamicPartitionsDefinition(name=f"{feed.name} batches")


def keys_of(feed: Feed) -> dict[str, dg.AssetKey]:
    return {stage: dg.AssetKey([feed.name, stage]) for stage in ("received", "validated", "loaded")}


def plain(name: str) -> str:
    """A name of the kind that Dagster takes for groups and jobs."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def import_assets(feed: Feed) -> list[dg.AssetsDefinition]:
    """The three assets of a feed."""
    return [_received(feed), _validated(feed), _loaded(feed)]


def _received(feed: Feed) -> dg.AssetsDefinition:
    patterns = " or ".join(f"`{pattern}`" for pattern in feed.patterns)

    @_stage(
        feed,
        "received",
        f"Exports of the feed `{feed.name}`, each taken from the inbox into its batch, which is named by the file's "
        f"hash. Taken are files that are called {patterns}.",
        kinds={"file"},
        code_version=software_version(),
    )
    def received(context: dg.AssetExecutionContext) -> Iterator[Any]:
        place = place_of(context)
        with told_without_data(place):
            yield from _ended(context, _receive_all(feed, place.home, context.partition_keys))

    return received


def _validated(feed: Feed) -> dg.AssetsDefinition:
    keys = keys_of(feed)

    @_stage(
        feed,
        "validated",
        f"What each row of such an export becomes as a {feed.resource}, by the feed and the rules of the interface: "
        "records to send, and rejects with every reason.",
        deps=[keys["received"]],
        kinds={"pandas", "parquet"},
        code_version=f"{software_version()}+{rules_version()}+{feed.hash[:12]}",
        check_specs=_specs(AFTER_VALIDATE, keys["validated"]),
        retry_policy=AGAIN,
        metadata={"dagster/column_schema": _accepted_schema()},
    )
    def validated(context: dg.AssetExecutionContext) -> Iterator[Any]:
        place = place_of(context)
        with told_without_data(place):
            session, outcome = place.session(context.log), Outcome()
            facts = _validate_all(session, feed, context.partition_keys, place.began, outcome)
            yield from _ended(context, outcome, AFTER_VALIDATE, facts)

    return validated


def _loaded(feed: Feed) -> dg.AssetsDefinition:
    keys = keys_of(feed)

    @_stage(
        feed,
        "loaded",
        f"The records in the chart, as {feed.resource} resources, each in one known state in the ledger.",
        deps=[keys["validated"]],
        kinds={"fhir"},
        code_version=software_version(),
        check_specs=_specs(AFTER_LOAD, keys["loaded"]),
        retry_policy=AGAIN,
        pool=LOAD_POOL,
        output_required=False,
    )
    def loaded(context: dg.AssetExecutionContext) -> Iterator[Any]:
        place = place_of(context)
        with told_without_data(place):
            session, outcome = place.session(context.log), Outcome()
            facts = _load_all(session, feed, context.partition_keys, place.began, outcome)
            yield from _ended(context, outcome, AFTER_LOAD, facts, last=True)

    return loaded


def _stage(
    feed: Feed, stage: str, description: str, **more: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """The decorator of an asset of a feed, with what its three have in common."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # the backfill policy: a backfill takes its batches in one run
        decorator = dg.asset(
            key=keys_of(feed)[stage],
            description=description,
            partitions_def=batches_of(feed),
            backfill_policy=dg.BackfillPolicy.single_run(),
            group_name=plain(feed.name),
            owners=OWNERS,
            required_resource_keys={RESOURCE_KEY},
            tags={"chartferry/source": plain(feed.source), "chartferry/resource": feed.resource},
            **more,
        )
    return cast("Callable[[Callable[..., Any]], dg.AssetsDefinition]", decorator)


def import_job(feed: Feed) -> "UnresolvedAssetJobDefinition":
    """The import of a feed's waiting files."""
    return dg.define_asset_job(
        f"import_{plain(feed.name)}",
        selection=list(keys_of(feed).values()),
        tags={FEED_TAG: feed.name},
        description=f"Receives, validates and loads batches of the feed `{feed.name}`.",
    )


def _specs(statements: Sequence[Statement[Any]], key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    return [statement.spec(key.path) for statement in statements]


def _accepted_schema() -> dg.TableSchema:
    return metadata.schema([(each.name, str(each.type), WHAT.get(each.name, "")) for each in ACCEPTED])


WHAT = {
    "line": "First physical line of the record.",
    "lines": "Physical lines of the record.",
    "key": "The record's key in its source.",
    "lane": "Records of one lane are sent one after another.",
    "position": "Place in the order of sending.",
    "content_hash": "Hash of the mapped record.",
    "amount_cents": "Amount in cents.",
    "body": "The body to send.",
}


# -- a stage over the batches of a run


def _receive_all(feed: Feed, home: Path, batch_ids: Sequence[str]) -> Outcome:
    outcome, waiting = Outcome(), waiting_files(feed, home / "inbox", set(batch_ids))
    for batch_id in batch_ids:
        try:
            path = waiting.get(batch_id)
            found = receive(path, feed, home) if path else received_before(home / "batches" / batch_id)
        except Unreadable as error:
            outcome.fail(batch_id, str(error))
            continue
        if found is None:
            outcome.fail(batch_id, "no file: it is not in the inbox any more, or its batch was purged")
        elif found.batch_id != batch_id:
            outcome.fail(batch_id, f"{found.file_name} changed meanwhile: it is the batch {found.batch_id} now")
        else:
            outcome.done[batch_id] = metadata.of_received(found)
    return outcome


def waiting_files(feed: Feed, inbox: Path, batch_ids: set[str]) -> dict[str, Path]:
    """Where in the inbox the files of these batches are."""
    found: dict[str, Path] = {}
    for path in sorted(inbox.iterdir()) if inbox.is_dir() else ():
        if len(found) == len(batch_ids) or not path.is_file() or path.name.startswith("."):
            continue
        if feed.takes(path.name) or marked_form(path):
            try:
                batch_id = batch_id_of(feed, path)
            except OSError:
                continue
            if batch_id in batch_ids:
                found[batch_id] = path
    return found


def batch_id_of(feed: Feed, path: Path) -> str:
    """The name of the batch that this file is."""
    with path.open("rb") as file:
        return f"{feed.name}-{hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"


def _validate_all(
    session: Session, feed: Feed, batch_ids: Sequence[str], since: datetime, outcome: Outcome
) -> dict[str, Validated]:
    """since: what was validated after this moment, by an earlier try of the same run, is not validated again."""
    facts: dict[str, Validated] = {}
    for batch_id in batch_ids:
        earlier = newest(session, feed, batch_id)
        received = received_before(session.home / "batches" / batch_id)
        if received is None:
            outcome.fail(batch_id, "nothing was received")
            continue
        try:
            if earlier.run and earlier.validated and earlier.at >= since:
                run, validated = earlier.run, earlier.validated
            else:
                run, validated = _validate_one(session, begin(session, received, feed))
        except Unreadable as error:
            outcome.fail(batch_id, str(error))
            continue
        facts[batch_id] = validated
        seconds = time.monotonic() - run.began
        outcome.done[batch_id] = metadata.of_validated(received.file_name, validated, seconds, _money(feed))
    return facts


def _validate_one(session: Session, run: Run) -> tuple[Run, Validated]:
    """Validates, and ends the run where nothing is to be sent. Raises Unreadable, and what the target's reads raise."""
    try:
        validated = validate_run(session, run)
    except Exception as error:
        state, message = (
            ("failed", str(error)) if isinstance(error, Unreadable) else (UNDER_WAY, "it was not validated to its end")
        )
        end_without_load(session, run, Validated(run.folder), state, message)
        raise
    if validated.stop:
        end_without_load(session, run, validated, "stopped", f"{run.received.file_name}: {validated.stop}")
    else:
        hand_over(session, run, validated)
    return run, validated


def _load_all(
    session: Session, feed: Feed, batch_ids: Sequence[str], since: datetime, outcome: Outcome
) -> dict[str, LoadedBatch]:
    """since: what was loaded after this moment, by an earlier try of the same run, is not loaded again."""
    facts: dict[str, LoadedBatch] = {}
    for batch_id in batch_ids:
        before = session.ledger.batch(session.target, batch_id)
        try:
            result = _load_one(session, feed, batch_id, since)
        except LedgerError as error:
            outcome.fail(batch_id, str(error), retryable=True)
            continue
        if result is None:
            outcome.fail(batch_id, "nothing was received")
            continue
        if result.state == FINISHED:
            outcome.done[batch_id] = metadata.of_loaded(result, session.connection.label, _money(feed))
        else:
            outcome.fail(batch_id, _why(result), retryable=result.unusable)
        if result.state in (FINISHED, UNDER_WAY) and not result.unusable:
            first = result.run == 1 and before is not None and before["state"] == UNDER_WAY
            facts[batch_id] = LoadedBatch(result, session.ledger.row_counts(session.target, batch_id), first)
    return facts


def _load_one(session: Session, feed: Feed, batch_id: str, since: datetime) -> Result | None:
    """Loads what was validated last; validates anew when that run has ended, or the feed changed. None without a file.

    A run that was stopped before its load stays so until the file is validated again.
    """
    found = newest(session, feed, batch_id)
    if found.run and found.validated:
        return end(session, found.run, found.validated, load_run(session, found.run, found.validated))
    if found.result and (found.result.state in NOTHING_SENT or (found.result.state == FINISHED and found.at >= since)):
        return found.result
    received = received_before(session.home / "batches" / batch_id)
    return run_batch(session, received, feed) if received else None


def _why(result: Result) -> str:
    return result.message or f"{result.count('in_doubt'):,} rows are in doubt, {result.waiting:,} wait for another run"


def _money(feed: Feed) -> bool:
    return feed.resource == "PaymentNotice"


# -- what a stage tells Dagster


def _ended(
    context: dg.AssetExecutionContext,
    outcome: Outcome,
    statements: Sequence[Statement[Any]] = (),
    facts: Mapping[str, Any] | None = None,
    last: bool = False,
) -> Iterator[Any]:
    """The materializations and the verdicts of the checks; a Failure when no batch went well, or in the last stage any.

    Before the last stage a run goes on for the batches that went well, and the others are met again at its end.
    """
    for batch_id, sentence in outcome.failed.items():
        context.log.error("%s: %s", batch_id, sentence)
    failing = bool(outcome.failed) and (last or not outcome.done)
    if failing:
        for batch_id, about in outcome.done.items():
            yield dg.AssetMaterialization(context.asset_key, partition=batch_id, metadata=about)
    else:
        for batch_id, about in outcome.done.items():
            context.add_asset_metadata(about, partition_key=batch_id)
        for batch_id, sentence in outcome.failed.items():
            context.add_asset_metadata({"failed": sentence}, partition_key=batch_id)
        yield dg.MaterializeResult()
    if facts:
        for statement in statements:
            yield statement.result(facts, context.asset_key.path)
    if failing:
        raise outcome.failure()
