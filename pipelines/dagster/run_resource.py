"""The resource that the stages of a Dagster run share: the home, and a session at the target, opened on first use.

It also turns failures into ones that Dagster's event log may keep: sentences of this program, else the class of the
exception and its lines of code, never values.
"""

import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from pipelines.client.replies import TargetUnusable
from pipelines.dagster.names import DagsterNames
from pipelines.home import disk
from pipelines.home.dagster_folder import INSECURE, STRICT, is_set
from pipelines.home.exits import ExplainedError
from pipelines.home.inbox import Inbox
from pipelines.home.preparing import check_mounted, prepare_home
from pipelines.home.progress import PlainProgress
from pipelines.ledger.failures import UNREAD, said_of
from pipelines.ledger.tables import LedgerError
from pipelines.session.opening import open_session
from pipelines.session.session import Session

Context = dg.AssetExecutionContext | dg.AssetCheckExecutionContext | dg.OpExecutionContext
RESOURCE_KEY = "workplace"
WORTH_ANOTHER_TRY = (LedgerError, TargetUnusable)
TERMINATED = (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)


class RunTerminated(dg.DagsterError, dg.DagsterExecutionInterruptedError):
    """A person terminated the run.

    Dagster retries a step with a retry policy after an interrupt, even after one that a person requested. It does not
    retry after an error of its own, and takes an interrupt for the end of the run: this exception is both.
    """


class RunWorkplace:
    """The home, the environment and the start time of a Dagster run, and its session, which `close` ends."""

    def __init__(self, home: Path, environ: Mapping[str, str], began: datetime | None = None) -> None:
        self.home, self.environ, self.began = home, environ, began or datetime.now(UTC)
        self._stack = ExitStack()
        self._session: Session | None = None

    @property
    def inbox(self) -> Inbox:
        return Inbox.of(self.home, self.environ)

    def session(self, log: logging.Logger) -> Session:
        """Return the session, whose progress goes to the log of the Dagster run; the first call connects.

        Raises FeedError, BadSetting, TargetUnusable, LedgerError.
        """
        progress = PlainProgress(partial(log.info, "%s"))
        if self._session is None:
            insecure, strict = (is_set(self.environ, name) for name in (INSECURE, STRICT))
            opened = open_session(self.home, self.environ, (), insecure, strict, progress)
            self._session = self._stack.enter_context(opened)
        self._session.progress = progress
        return self._session

    def close(self) -> None:
        """End the session; the next call of `session` connects again."""
        self._session = None
        self._stack.close()


def workplace_resource(home: Path, environ: Mapping[str, str]) -> dg.ResourceDefinition:
    @dg.resource(description="The home folder and the target, as the environment names them.")
    def workplace(context: dg.InitResourceContext) -> Iterator[RunWorkplace]:
        check_mounted(home, environ)
        prepare_home(home)
        place = RunWorkplace(home, environ, _began(context))
        try:
            yield place
        finally:
            place.close()

    return workplace


def _began(context: dg.InitResourceContext) -> datetime | None:
    """Return when the run began, None if unknown. Several processes may make its steps, one after another."""
    record = context.instance.get_run_record_by_id(context.run.run_id) if context.instance and context.run else None
    began = record.start_time if record else None
    return None if began is None else datetime.fromtimestamp(began, UTC)


def _place_of(context: Context) -> RunWorkplace:
    place: Any = getattr(context.resources, RESOURCE_KEY)
    assert isinstance(place, RunWorkplace)  # noqa: S101 - the definitions put nothing else there
    return place


def names_in(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> DagsterNames:
    """Return the names of the home that a step works in."""
    return DagsterNames.of(_place_of(context).environ)


def batches_in(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> list[str]:
    """Return the batches of a step's partitions."""
    names = names_in(context)
    return [names.batch(partition) for partition in context.partition_keys]


@contextmanager
def workplace_of(context: Context) -> Iterator[RunWorkplace]:
    """Yield the workplace of the run, and turn a failure at work into one without data.

    Failures of the target or the ledger are retried, with a new session. So is an interrupt, unless a person terminated
    the run.
    """
    place = _place_of(context)
    told: BaseException | None = None
    try:
        yield place
    except dg.Failure as failure:
        if failure.allow_retries:  # a stage's own failure: the credentials may also be others at the next try
            place.close()
        raise
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as interrupt:
        run = context.instance.get_run_by_id(context.run.run_id)
        told = RunTerminated("The run was terminated.") if run and run.status in TERMINATED else type(interrupt)()
    except ExplainedError as error:
        told = dg.Failure(str(error), allow_retries=isinstance(error, WORTH_ANOTHER_TRY))
    except Exception as error:  # noqa: BLE001 - raised again without its text, which may hold values
        told = _failure(error)
    if told:
        place.close()
        raise told from None


def _failure(error: Exception) -> dg.Failure:
    """Return a failure in one sentence, with its lines of code. That of the disk or the ledger may be over soon."""
    frames = traceback.extract_tb(error.__traceback__)
    where = "\n".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    may_end = disk.is_full(error) or isinstance(error, UNREAD)
    return dg.Failure(said_of(error), {"where": dg.MetadataValue.text(where)}, allow_retries=may_end)
