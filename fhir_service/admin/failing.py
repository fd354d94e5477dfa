"""Commands that end at once, and failures of commands: one line, and an exit code."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from fhir_service.admin.running_service import CommandError
from fhir_service.leaving import leaving_at_once, raise_interrupt

BUSY, INTERRUPTED = 5, 130


class _Command(click.Command):
    """A command that ends with one line at Ctrl-C or SIGTERM, and removes what it had begun to write."""

    def invoke(self, context: click.Context) -> Any:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            try:
                return super().invoke(context)
            except RuntimeError as error:
                raise_interrupt(error)
                raise
        except KeyboardInterrupt:
            click.echo("fhir-service: stopped; start the same command again to finish", err=True)
            raise SystemExit(INTERRUPTED) from None
        finally:
            signal.signal(signal.SIGTERM, before)


class PlainCommands(click.Group):
    """Commands of a process that ends at once after them."""

    command_class = _Command
    group_class = type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with leaving_at_once():
            return super().__call__(*args, **kwargs)


class Failed(click.ClickException):
    """A command that ends with one line and an exit code."""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self._exit_code = exit_code

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return self._exit_code


@contextmanager
def plainly(store: Path | None = None) -> Iterator[None]:
    """Turn an error into one line and an exit code. store: the file of the store, if it has one."""
    try:
        yield
    except CommandError as error:
        raise Failed(str(error), error.exit_code) from None
    except Exception as error:  # noqa: BLE001 - what is not explained is raised again
        said = sentence_of(error, store)
        raise (Failed(said, _exit_code(error)) if said else error) from None


def sentence_of(error: Exception, store: Path | None) -> str | None:
    """Return the line that says why a command failed; None for a fault of the software: its text may hold values."""
    from fhir_service.interface.outcomes import UNAVAILABLE, FhirError
    from fhir_service.store.disk_errors import is_full
    from fhir_service.store.migrations import StoreVersion
    from fhir_service.store.opening import StoreBusy
    from fhir_service.writing.commits import CommitFailed

    if isinstance(error, CommitFailed):
        return "the database did not confirm the change: check whether it is stored before you repeat the command"
    if is_full(error):
        return f"there is no space left on the disk of {store or 'the store'}: make room there, and try again"
    if isinstance(error, FhirError) and error.outcome is UNAVAILABLE:
        return "the database does not answer, and nothing was changed: try again later"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, StoreBusy | StoreVersion | OSError | ValueError) else None


def _exit_code(error: Exception) -> int:
    from fhir_service.store.opening import StoreBusy

    return BUSY if isinstance(error, StoreBusy) else 1
