"""The sensor that sends alerts as JSON to the operator's command or web address, when an event begins and when it ends.

An alert that cannot be sent is tried again a few times, and never makes anything fail. Alerts hold names of jobs, runs,
batches and files, and sentences of this program, never a row of data.
"""

import json
import shlex
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import httpx

from pipelines.dagster.inbox.files import LAIN_TOO_LONG, lain_for
from pipelines.dagster.names import ONE_HOME, RETRIED_AS_TAG, WILL_RETRY_TAG, DagsterNames
from pipelines.dagster.requests import kept, ticking, understood
from pipelines.dagster.stages.outcome import why_failed
from pipelines.dagster.standing.verdicts import broken_in, unexpected_in
from pipelines.dagster.tables import PUBLISH, REFRESH
from pipelines.dagster.waiting import WaitReason, waiting_now
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import printable_name
from pipelines.home.dagster_folder import BATCH_TAG, TOLD_TAG
from pipelines.importing.current_problems import FeedProblems, none_taken, not_known
from pipelines.ledger.failures import UNREAD, unread

COMMAND, WEBHOOK = "CHARTFERRY_ALERT_COMMAND", "CHARTFERRY_ALERT_WEBHOOK"
SECONDS_BETWEEN_LOOKS = 60
SECONDS_OF_COMMAND, SECONDS_OF_WEBHOOK = 20.0, 10.0
ALERTS_A_LOOK = 20
SECONDS_OF_GIVING = 20.0
"""No alert is started later than this in a look, since Dagster stops a sensor after 60 seconds."""
TRIES = 5
RETRIED_WITHIN_SECONDS = 600.0
LOOKS_BACK = timedelta(days=1)
FAILURES_A_LOOK = 200


@dataclass(frozen=True)
class AlertEvent:
    """A failure that a person should know about.

    key: identifies it over all looks, so that it is sent once. problem: identifies what ends, if events of several keys
    report one problem.
    """

    key: str
    kind: str
    text: str
    about: Mapping[str, Any]
    problem: str = ""

    @property
    def ends_as(self) -> str:
        return self.problem or self.key

    def as_json(self, home: Path, now: datetime, clinic: str = "") -> dict[str, Any]:
        at = now.isoformat(timespec="seconds")
        where = {"home": str(home)} | ({"clinic": clinic} if clinic else {})
        return {"event": self.kind, "text": self.text, "at": at, **where, **self.about}


ENDS = (
    *("batch_failed", "batch_unfinished", "nothing_taken", "rows_in_doubt", "file_not_received"),
    *("file_late", "file_unusual", "state_unknown", "publication_late", "imports_wait"),
)
"""The kinds of events whose end is sent too. A failed run has no end: it stays failed."""
OF_BATCHES = ("batch_failed", "batch_unfinished", "nothing_taken", "rows_in_doubt")
WELL = "well "
LONGEST_TEXT = 300


@dataclass
class AlertMemory:
    """The sensor's memory.

    * since: failed runs before this time are ignored.
    * keys: events that were sent and still hold.
    * tries: by key, how often an event could not be sent.
    * last: by problem, the text of the last event sent of it, whose end must be sent.
    """

    since: float
    keys: set[str]
    tries: dict[str, int]
    last: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, cursor: str | None, now: datetime) -> "AlertMemory":
        """Return the content of a cursor.

        A time in the future was written by a clock that was ahead: failures then count from now.
        """
        told = understood(cursor, cls, cls(now.timestamp(), set(), {}))
        return replace(told, since=max(0.0, min(now.timestamp(), told.since)))

    def over(self, events: Iterable[AlertEvent]) -> list[AlertEvent]:
        """Return an event for each sent event that no longer holds."""
        held = {event.ends_as for event in events}
        gone = [(key, text) for key, text in self.last.items() if key not in held]
        return [AlertEvent(f"{WELL}{key}", "well_again", f"Resolved: {text}", {}) for key, text in gone]

    def keep(self, addressed: Mapping[str, AlertEvent]) -> None:
        """Note the sent events whose end must be sent; forget those whose end was sent to all recipients.

        addressed: the events of this look, by channel and key.
        """
        for key, event in addressed.items():
            if key in self.keys and event.kind in ENDS:
                self.last[event.ends_as] = event.text[:LONGEST_TEXT]
        ended = {event.key for event in addressed.values() if event.kind == "well_again"}
        waiting = {event.key for key, event in addressed.items() if key not in self.keys}
        for key in ended - waiting:
            self.last.pop(key.removeprefix(WELL), None)


def alert_sensor(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> dg.SensorDefinition:
    names = DagsterNames.of(environ)
    says = (
        f"Sends alerts to the command in {COMMAND} or the address in {WEBHOOK}: once for each failed run, failed or "
        "unfinished batch, batch with rows in doubt, file that stays in the inbox, and late publication."
    )

    @ticking(names, home, "alerts", SECONDS_BETWEEN_LOOKS, says, is_wanted=_tells_anybody(environ))
    def alerts(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if not _tells_anybody(environ):
            return dg.SkipReason(f"No alert can be sent: neither {COMMAND} nor {WEBHOOK} is set.")
        now = datetime.now(UTC)
        told = AlertMemory.of(context.cursor, now)
        held = cache(lambda: waiting_now(home, environ, feeds, now))
        events, unseen = gathered_events(
            lambda: of_runs(context.instance, told.since, now, names),
            lambda: of_batches(home, environ),
            lambda: of_waiting(held()),
            lambda: of_inbox(home, now, held()),
            lambda: of_expectations(home, environ, feeds),
            lambda: of_freshness(context.instance, names),
        )
        before, echoed = set(told.keys), echoes(events)
        addressed = by_way([*events, *([] if unseen else told.over(events))], environ)
        told.keys |= {key for key, (event, _) in addressed.items() if event.key in echoed}
        given = tell_new(
            told,
            [replace(event, key=key) for key, (event, _) in addressed.items()],
            lambda event: give(event.as_json(home, now, names.clinic), addressed[event.key][1], context.log.warning),
        )
        told.keep({key: event for key, (event, _) in addressed.items()})
        told.keys |= before if unseen else set()  # an event that could not be read does not count as over
        return dg.SensorResult(cursor=kept(told), skip_reason=f"Alerts sent: {given}.")

    return alerts


def _tells_anybody(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(COMMAND) or environ.get(WEBHOOK))


def by_way(events: Iterable[AlertEvent], environ: Mapping[str, str]) -> dict[str, tuple[AlertEvent, dict[str, str]]]:
    """Return each event once for each channel that is set, under a key and an environment of that channel.

    A channel that fails is tried again separately, since the other one has sent the event already.
    """
    found: dict[str, tuple[AlertEvent, dict[str, str]]] = {}
    for at, way in enumerate(each for each in (COMMAND, WEBHOOK) if environ.get(each)):
        alone = {name: value for name, value in environ.items() if name == way or name not in (COMMAND, WEBHOOK)}
        found |= {f"{way} {event.key}" if at else event.key: (event, alone) for event in events}
    return found


def echoes(events: Collection[AlertEvent]) -> set[str]:
    """Return the keys of failed runs whose batches all have events of their own.

    These runs count as sent, so that they cause no alert once their files are mended.
    """
    told = {batch for event in events if event.kind in OF_BATCHES for batch in event.about["batches"]}
    runs = [event for event in events if event.kind == "run_failed" and event.about["batches"]]
    return {event.key for event in runs if told.issuperset(event.about["batches"])}


def gathered_events(*sources: Callable[[], Iterable[AlertEvent]]) -> tuple[list[AlertEvent], bool]:
    """Return the events of all sources, and True if a source could not be read, which is an event too."""
    events: list[AlertEvent] = []
    for source in sources:
        try:
            events += source()
        except UNREAD as error:
            events.append(AlertEvent("not read", "state_unknown", unread(error), {}))
    return events, any(event.key == "not read" for event in events)


def tell_new(
    told: AlertMemory,
    events: list[AlertEvent],
    give: Callable[[AlertEvent], bool],
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Send new events, forget those that are over, and return how many were sent.

    An event that cannot be sent is tried at `TRIES` looks, then dropped. Events that do not fit into the time of a look
    come first in the next one, before those that failed.
    """
    until = clock() + SECONDS_OF_GIVING
    current = {event.key: event for event in events}
    told.keys &= set(current)
    told.tries = {key: tries for key, tries in told.tries.items() if key in current}
    new = [event for key, event in current.items() if key not in told.keys]
    given = 0
    for event in sorted(new, key=lambda event: told.tries.get(event.key, 0))[:ALERTS_A_LOOK]:
        if clock() > until:
            break
        tries = told.tries.pop(event.key, 0) + 1
        if give(event):
            given += 1
        elif tries < TRIES:
            told.tries[event.key] = tries
            continue
        told.keys.add(event.key)
    return given


# -- events


def of_runs(instance: dg.DagsterInstance, since: float, now: datetime, names: DagsterNames) -> Iterator[AlertEvent]:
    """Yield the failed runs of the last day that are not retried, without those that report the command line.

    Each is about the batches that failed it, or all its batches if it failed for another reason.
    """
    after = max(datetime.fromtimestamp(since, UTC), now - LOOKS_BACK)
    wanted = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_after=after, tags=names.own_runs)
    for record in instance.get_run_records(wanted, limit=FAILURES_A_LOOK):
        run = record.dagster_run
        if TOLD_TAG in run.tags or _is_retried(run, record.end_time or 0.0, now):
            continue
        of_run = [names.batch(partition) for partition in run.tags.get(BATCH_TAG, "").split()]
        failed, why = why_failed(instance, run.run_id)
        publishes = run.asset_selection is not None and names.published in run.asset_selection
        kind = "publishing_failed" if publishes or run.job_name in map(names.job, (PUBLISH, REFRESH)) else "run_failed"
        about = {"job": run.job_name, "run_id": run.run_id, "batches": failed or of_run}
        said = f"The run {run.run_id} of {run.job_name} failed{': ' if why else ''}{why[:LONGEST_TEXT] or '.'}"
        yield AlertEvent(f"run {run.run_id}", kind, said, about)


def _is_retried(run: dg.DagsterRun, ended: float, now: datetime) -> bool:
    """True if the failed run was retried, or may still be retried."""
    soon = now.timestamp() - ended < RETRIED_WITHIN_SECONDS
    return run.tags.get(WILL_RETRY_TAG) == "true" and (soon or RETRIED_AS_TAG in run.tags)


def of_batches(home: Path, environ: Mapping[str, str]) -> Iterator[AlertEvent]:
    """Yield failed and unfinished batches, batches with every record set aside, and rows in doubt."""
    for feed, broken in broken_in(home, environ).items():
        for batch_id, why in broken.failed.items():
            yield _of_batch("failed", "batch_failed", feed, broken, batch_id, f" was not imported: {why}")
        for batch_id, number in broken.nothing_taken.items():
            said = f": {none_taken(number)}."
            yield _of_batch("nothing", "nothing_taken", feed, broken, batch_id, said)
        for batch_id, rows in broken.doubts.items():
            said = f": {not_known(rows)}."
            yield _of_batch("doubt", "rows_in_doubt", feed, broken, batch_id, said, rows=rows)
        for batch_id in broken.unfinished:
            yield _of_batch("unfinished", "batch_unfinished", feed, broken, batch_id, " was not finished.")


def _of_batch(
    key: str, kind: str, feed: str, broken: FeedProblems, batch_id: str, said: str, **more: int
) -> AlertEvent:
    """Return the event of a batch, with its file named in the text."""
    name = broken.files.get(batch_id)
    about = {"feed": feed, "batches": [batch_id], "files": [name or ""], **more}
    return AlertEvent(f"{key} {batch_id}", kind, f"{f'{name} ({batch_id})' if name else batch_id}{said}", about)


def of_waiting(held: WaitReason | None) -> Iterator[AlertEvent]:
    """Yield one event if something blocks imports."""
    if held:
        yield AlertEvent(f"waits {held.cause}", "imports_wait", held.sentence, {"files": list(held.files)})


def of_inbox(home: Path, now: datetime, held: WaitReason | None = None) -> Iterator[AlertEvent]:
    """Yield the files that stay in the inbox. The key has the time, so that a file that comes again is a new event.

    held: what blocks all imports; one event then reports all files.
    """
    if held and held.files:
        return
    for name, at in lain_for(home / "inbox", now, LAIN_TOO_LONG).items():
        file, since = printable_name(name), at.isoformat(timespec="seconds")
        text = f"{file} has lain in the inbox since {since}."
        yield AlertEvent(f"lies {file} {since}", "file_not_received", text, {"file": file, "since": since})


def of_expectations(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> Iterator[AlertEvent]:
    """Yield files that are late, and files that are unlike those before, for feeds with expectations.

    Several days without a file are one problem, which ends when a file comes.
    """
    for feed, found in unexpected_in(home, environ, feeds).items():
        if found.late:
            said, of = f"{feed}: {found.late}.", f"late {feed}"
            yield AlertEvent(f"{of} {found.late}", "file_late", said, {"feed": feed}, of)
        for batch_id, said in found.unusual.items():
            about = {"feed": feed, "batches": [batch_id]}
            yield AlertEvent(f"unusual {batch_id}", "file_unusual", f"{batch_id} is unusual: {said}.", about)


def of_freshness(instance: dg.DagsterInstance, names: DagsterNames = ONE_HOME) -> Iterator[AlertEvent]:
    """Yield one event if the publication is overdue by its freshness policy."""
    record = instance.get_freshness_state_records([names.published]).get(names.published)
    if record and record.freshness_state == "FAIL":
        yield AlertEvent("late", "publication_late", "The published tables are older than the schedule allows.", {})


# -- sending


def give(document: Mapping[str, Any], environ: Mapping[str, str], warn: Callable[[str], None]) -> bool:
    """Send an alert to the command and the web address that are set. Return False, and raise nothing, if one fails."""
    try:
        if command := environ.get(COMMAND):
            _run(command, json.dumps(document), environ)
        if address := environ.get(WEBHOOK):
            httpx.post(address, json=document, timeout=SECONDS_OF_WEBHOOK).raise_for_status()
    except (OSError, ValueError, subprocess.SubprocessError, httpx.HTTPError, httpx.InvalidURL) as error:
        warn(
            f"the alert {document['event']} could not be sent ({type(error).__name__}); it is tried again at the"
            " next looks"
        )
        return False
    return True


def _run(command: str, document: str, environ: Mapping[str, str]) -> None:
    subprocess.run(  # noqa: S603 - the operator's own command, no shell
        shlex.split(command),
        input=document.encode(),
        env=dict(environ),
        capture_output=True,
        check=True,
        timeout=SECONDS_OF_COMMAND,
    )
