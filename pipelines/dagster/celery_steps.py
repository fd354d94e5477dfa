"""Dagster's executor for Celery, for brokers and storages that go away for a while or restart without their data.

Celery's loop waits for ever for a step that the broker lost. It ends a run if the broker is away for a moment. It hangs
if one step could not be started while another waits for its next try.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import dagster as dg
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult
from dagster_celery.core_execution_loop import core_celery_execution_loop
from dagster_celery.executor import _submit_task, celery_executor
from kombu.exceptions import OperationalError
from kombu.transport.redis import PRIORITY_STEPS, Channel

MARK_SECONDS = 24 * 3600
LOOK_SECONDS, LOOKS = 10.0, 2
"""The pause between looks for a step at the broker, and the number of misses in a row after which it is lost."""
TRIES, PAUSE_SECONDS = 30, 10.0
"""The number of times that a step that could not be started is handed over again: for five minutes."""


class NotBegun(Exception):
    """A step could not be started, or its state not reported. The message is one sentence."""


class SentStep:
    """A step at the broker, in the form that Celery's loop expects: a result that is ready or not.

    submit: hands the step over. queue: where the step waits for a worker.
    """

    def __init__(self, app: Any, name: str, submit: Callable[[], "AsyncResult[Any]"], queue: str) -> None:
        self._broker, self._name, self._submit = AtBroker(app, queue), name, submit
        self._results: list[AsyncResult[Any]] = []
        self._done: AsyncResult[Any] | None = None
        self._is_revoked = False
        self._failed, self._again_at = 0, 0.0
        self._away = (OperationalError, *getattr(app.backend, "connection_errors", ()))
        self._refusals = tuple(getattr(app.backend, "channel_errors", ()))
        with suppress(*self._away, *self._refusals):
            self._send()

    def ready(self) -> bool:
        """True once there is a result. Hands the step over again if it was lost or not started. Raises `NotBegun`."""
        try:
            return self._is_ready()
        except self._away:  # the loop asks again in a second
            return False
        except self._refusals as error:  # Redis accepts no writes: it is a replica at the moment, or its disk is full
            self._note_failure(type(error).__name__)
            return False

    def get(self) -> Any:
        """Return the result, or raise its error, without asking Redis again, which may be away."""
        if self._done is None:
            raise TaskRevokedError("the broker lost it")
        return self._done.get()

    def revoke(self) -> None:
        self._is_revoked = True
        for each in self._results:
            with suppress(*self._away, *self._refusals):
                each.revoke()

    def _is_ready(self) -> bool:
        if done := next((each for each in self._results if each.ready()), None):
            if not done.failed() or self._is_revoked:
                self._done = done
                return True
            self._note_failure(type(done.result).__name__)
            self._results.remove(done)
        if time.monotonic() < self._again_at or self._is_kept():
            return False
        if self._is_revoked:
            return True
        self._send()
        return False

    def _send(self) -> None:
        sent = self._submit()
        self._results.append(sent)
        self._broker.note_sent(sent.id)

    def _is_kept(self) -> bool:
        """True if the broker still has the last hand-over."""
        return bool(self._results) and self._broker.has(self._results[-1].id)

    def _note_failure(self, kind: str) -> None:
        self._failed, self._again_at = self._failed + 1, time.monotonic() + PAUSE_SECONDS
        if self._failed > TRIES:
            raise NotBegun(
                f"{self._name} could not be started, or its end not reported, in {self._failed} tries "
                f"({kind}); see the logs of the workers"
            )


class AtBroker:
    """The traces in Redis of a step that was handed over. A step in another kind of store counts as present.

    A mark for the step is stored beside the results, and is gone if Redis lost its data. A step that was on its way to
    a worker that died has its mark, but is neither in a queue nor with a worker.
    """

    def __init__(self, app: Any, queue: str) -> None:
        self._client: Any = getattr(app.backend, "client", None)
        self._queues = [f"{queue}{Channel.sep}{each}" if each else queue for each in PRIORITY_STEPS]
        self._has_queues = app.conf.broker_url == app.conf.result_backend
        self._missed, self._look_at = 0, 0.0

    def note_sent(self, step: str) -> None:
        self._missed, self._look_at = 0, time.monotonic() + LOOK_SECONDS
        if self._client is not None:  # after the step: a Redis that lost a second has no mark alone
            self._client.set(_mark(step), "sent", ex=MARK_SECONDS)

    def has(self, step: str) -> bool:
        """True unless the step is lost."""
        if self._client is None:
            return True
        if not self._client.expire(_mark(step), MARK_SECONDS):
            return False
        if self._has_queues and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            self._missed = 0 if self._is_seen(step) else self._missed + 1
        return self._missed < LOOKS

    def _is_seen(self, step: str) -> bool:
        """True if a worker has the step, or any step waits in the queues: this step may be one of them."""
        with self._client.pipeline() as asked:
            for each in self._queues:
                asked.llen(each)
            *waiting, with_workers = asked.hvals(Channel.unacked_key).execute()
        return any(waiting) or any(step.encode() in each for each in with_workers)


def _mark(step: str) -> str:
    return f"chartferry-step-{step}"


def _hand_over(app: Any, plan_context: Any, step: Any, queue: str, *more: Any) -> SentStep:
    return SentStep(app, step.key, partial(_submit_task, app, plan_context, step, queue, *more), queue)


def _steps_by_celery(init_context: dg.InitExecutorContext) -> dg.Executor:
    executor: Any = CELERYS.executor_creation_fn(init_context)
    executor.execute = partial(core_celery_execution_loop, step_execution_fn=_hand_over)
    return cast(dg.Executor, executor)


CELERYS: Any = celery_executor
steps_by_celery = dg.ExecutorDefinition(
    "celery", CELERYS.config_schema, dg.multiple_process_executor_requirements(), _steps_by_celery
)
"""An executor with Celery workers that hands over lost steps again."""
