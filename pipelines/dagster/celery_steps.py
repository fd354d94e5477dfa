"""Dagster's executor for Celery, where broker and storage may be away for a while or begin anew without what they kept.

Celery's loop waits for ever for a step that the broker lost, ends a run when the broker is away for a moment, and hangs
where one step could not be begun while another waits for its next try.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import dagster as dg
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult
from dagster._core.execution.retries import RetryMode
from dagster_celery.core_execution_loop import core_celery_execution_loop
from dagster_celery.executor import CELERY_CONFIG, CeleryExecutor, _submit_task
from kombu.exceptions import OperationalError

MARK_SECONDS = 24 * 3600
TRIES, PAUSE_SECONDS = 30, 10.0
"""How often a step that could not be begun is handed over again: for five minutes."""


class NotBegun(Exception):
    """A step could not be begun or told of: one sentence."""


class Sent:
    """A step at the broker, as Celery's loop looks at it: a result that is there or not.

    submit: hands it over. Beside the results there is a mark for it, which is gone where the broker kept nothing.
    """

    def __init__(self, app: Any, name: str, submit: Callable[[], "AsyncResult[Any]"]) -> None:
        self._app, self._name, self._submit = app, name, submit
        self._results: list[AsyncResult[Any]] = []
        self._is_revoked = False
        self._failed, self._again_at = 0, 0.0
        self._away = (OperationalError, *getattr(app.backend, "connection_errors", ()))
        with suppress(*self._away):
            self._send()

    def ready(self) -> bool:
        """True once there is a result. Hands over again what is lost or could not be begun. Raises `NotBegun`."""
        try:
            return self._is_ready()
        except self._away:  # it is asked again in a second
            return False

    def get(self) -> Any:
        done = next((each for each in self._results if each.ready()), None)
        if done is None:
            raise TaskRevokedError("the broker lost it")
        return done.get()

    def revoke(self) -> None:
        self._is_revoked = True
        for each in self._results:
            with suppress(*self._away):
                each.revoke()

    def _is_ready(self) -> bool:
        if done := next((each for each in self._results if each.ready()), None):
            if not done.failed() or self._is_revoked:
                return True
            self._note_failure(done)
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
        if hasattr(self._app.backend, "client"):  # after the step: a Redis that lost the last second has not this alone
            self._app.backend.client.set(_mark(sent), "sent", ex=MARK_SECONDS)

    def _is_kept(self) -> bool:
        """True if the broker still has what was handed over last."""
        if not self._results:
            return False
        backend = self._app.backend
        return not hasattr(backend, "client") or bool(backend.client.expire(_mark(self._results[-1]), MARK_SECONDS))

    def _note_failure(self, result: "AsyncResult[Any]") -> None:
        self._failed, self._again_at = self._failed + 1, time.monotonic() + PAUSE_SECONDS
        if self._failed > TRIES:
            raise NotBegun(
                f"{self._name} could not be begun, or told of, in {self._failed} tries "
                f"({type(result.result).__name__}): see the logs of the workers"
            )


def _mark(result: "AsyncResult[Any]") -> str:
    return f"chartferry-step-{result.id}"


class StepsByCelery(CeleryExecutor):
    """Dagster's executor for Celery, with steps that are handed over again."""

    def execute(self, plan_context: Any, execution_plan: Any) -> Any:
        loop: Any = core_celery_execution_loop
        return loop(plan_context, execution_plan, step_execution_fn=_hand_over)


def _hand_over(app: Any, plan_context: Any, step: Any, *where: Any) -> Sent:
    return Sent(app, step.key, partial(_submit_task, app, plan_context, step, *where))


@dg.executor(name="celery", config_schema=CELERY_CONFIG, requirements=dg.multiple_process_executor_requirements())
def steps_by_celery(init_context: dg.InitExecutorContext) -> Any:
    """Steps by workers of Celery."""
    asked: Any = init_context.executor_config
    made: Any = StepsByCelery
    given = {name: asked.get(name) for name in ("broker", "backend", "config_source", "include")}
    return made(retries=RetryMode.from_config(asked["retries"]), **given)
