"""The figures of the import for Prometheus: states, outcomes, rejects, doubts, publication, ticks and lease.

They are read from the ledger and the home, for the target of the newest run. Labels are names of feeds, states and
sensors, never a batch, a file or a value.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from fhir_service.paths import is_file
from pipelines.home.files import write_whole
from pipelines.home.sensor_ticks import last_ticks
from pipelines.importing.current_problems import ALL_AGES, broken_now, loaded_last
from pipelines.ledger import tables as t
from pipelines.ledger.batch_counts import as_of_now
from pipelines.ledger.failures import UNREAD
from pipelines.ledger.lease import seen_of_late
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.states import OUTCOMES
from pipelines.runs.manifest import software_version
from pipelines.session.ledger import ledger_of

FILE = "metrics.prom"
BATCH_STATES = ("running", "finished", "stopped", "failed")
COUNTED = ("rejected", *OUTCOMES)


class Figures(Collector):
    """The figures of a home, read each time they are collected. ledger: opens the ledger, if there is one."""

    def __init__(self, home: Path, ledger: Callable[[], AbstractContextManager[Ledger | None]]) -> None:
        self._home, self._ledger = home, ledger

    def describe(self) -> Iterable[Metric]:
        """Return nothing: a registry would read all figures only to name them."""
        return ()

    def collect(self) -> Iterator[Metric]:
        with self._ledger() as ledger:
            yield from figures(self._home, ledger)


def write_figures_of(home: Path, environ: Mapping[str, str]) -> None:
    """Write `metrics.prom` in one step, if the home has a ledger. If that fails, the command before still counts as
    done.
    """
    with suppress(*UNREAD), ledger_of(home, environ) as ledger:
        if ledger:
            write_whole(home / FILE, generate_latest(Figures(home, lambda: nullcontext(ledger))))


def figures(home: Path, ledger: Ledger | None) -> Iterator[Metric]:
    """Yield the present figures; without a ledger only those of the home."""
    now = datetime.now(UTC)
    yield InfoMetricFamily("chartferry", "The program", {"version": software_version()})
    yield _gauge("chartferry_figures_timestamp_seconds", "When these figures were read", now.timestamp())
    yield from _of_home(home)
    if ledger is None:
        return
    if target := loaded_last(ledger):
        yield from _of_batches(ledger, target)
        yield from _of_problems(ledger, home, ledger.clock())
    yield from _of_times(ledger)
    yield from _of_lease(ledger, ledger.clock())


# -- families


def _gauge(name: str, says: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, says, value)


def _labelled(name: str, says: str, labels: list[str], values: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, says, labels=labels)
    for given, value in sorted(values.items()):
        family.add_metric(list(given), value)
    return family


def _of_home(home: Path) -> Iterator[Metric]:
    ticks = last_ticks(home)
    yield _labelled(
        "chartferry_sensor_last_tick_timestamp_seconds",
        "When each sensor last ran",
        ["sensor"],
        {(name,): at.timestamp() for name, at in ticks.items()},
    )
    if ticks:
        last = max(at.timestamp() for at in ticks.values())
        yield _gauge("chartferry_daemon_last_tick_timestamp_seconds", "When Dagster's daemon last ran a sensor", last)
    waiting = _waiting(home / "inbox")
    yield _gauge("chartferry_inbox_files", "Files that lie in the inbox", len(waiting))
    if waiting:
        yield _gauge(
            "chartferry_inbox_oldest_timestamp_seconds", "When the oldest file in the inbox was written", min(waiting)
        )


def _waiting(inbox: Path) -> list[float]:
    """Return the modification times of the files in the inbox."""
    try:
        return [entry.stat().st_mtime for entry in inbox.iterdir() if is_file(entry) and entry.name[0] != "."]
    except OSError:
        return []


def _of_batches(ledger: Ledger, target: str) -> Iterator[Metric]:
    batches = ledger.batches(target)
    feeds = sorted({str(batch["feed"]) for batch in batches})
    states = Counter((str(batch["feed"]), str(batch["state"])) for batch in batches)
    rows: Counter[tuple[str, str]] = Counter()
    for batch in batches:
        counts = as_of_now(ledger, batch)
        rows.update({(str(batch["feed"]), name): int(counts[name] or 0) for name in COUNTED})
    yield _labelled(
        "chartferry_batches",
        "Batches by state",
        ["feed", "state"],
        {(feed, state): states[feed, state] for feed in feeds for state in BATCH_STATES},
    )
    yield _labelled(
        "chartferry_rows",
        "Records of files by their first outcome",
        ["feed", "outcome"],
        {(feed, name): rows[feed, name] for feed in feeds for name in COUNTED},
    )


def _of_problems(ledger: Ledger, home: Path, now: datetime) -> Iterator[Metric]:
    broken = broken_now(ledger, home, now)
    yield _labelled(
        "chartferry_rejects_open",
        "Open rejects by the time since they were first set aside",
        ["feed", "age"],
        {(feed, age): found.rejects[age] for feed, found in broken.items() for age in ALL_AGES},
    )
    counted = {
        "rows_in_doubt": ("Rows in doubt: sent, and not known if the target has them", "doubts"),
        "batches_failed": ("Batches that failed or were stopped, with records that no later file answers", "failed"),
        "batches_unfinished": ("Unfinished batches on which no process has worked for an hour", "unfinished"),
        "batches_nothing_taken": ("Batches of which every record was set aside", "nothing_taken"),
    }
    for name, (says, field) in counted.items():
        values: dict[tuple[str, ...], float] = {}
        for feed, found in broken.items():
            held = getattr(found, field)
            values[feed,] = sum(held.values()) if field == "doubts" else len(held)
        yield _labelled(f"chartferry_{name}", says, ["feed"], values)


def _of_times(ledger: Ledger) -> Iterator[Metric]:
    latest = {
        "chartferry_last_publication_timestamp_seconds": (
            "When tables were last published",
            t.publication.c.published_at,
        ),
        "chartferry_last_run_timestamp_seconds": ("When a run of a batch last ended", t.run.c.finished_at),
    }
    for name, (says, column) in latest.items():
        if at := ledger.value(select(func.max(column))):
            yield _gauge(name, says, datetime.fromisoformat(str(at)).timestamp())


def _of_lease(ledger: Ledger, now: datetime) -> Iterator[Metric]:
    times = [datetime.fromisoformat(str(at)) for (at,) in ledger.read(select(t.lease.c.heartbeat_at))]
    yield _gauge("chartferry_lease_held", "Loaders that are running", len(seen_of_late(ledger.read, now)))
    if times:
        last = max(times).timestamp()
        yield _gauge("chartferry_lease_heartbeat_timestamp_seconds", "Last heartbeat of a loader", last)
