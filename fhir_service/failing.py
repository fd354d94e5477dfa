"""Failures of commands: one line, and an exit code."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from fhir_service.admin_socket import CommandError

BUSY = 5


class Failed(click.ClickException):
    """A command that ends with one line and an exit code."""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self._exit_code = exit_code

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return self._exit_code


@contextmanager
def plainly() -> Iterator[None]:
    """Turn an error into one line and an exit code."""
    try:
        yield
    except CommandError as error:
        raise Failed(str(error), error.exit_code) from None
    except Exception as error:  # noqa: BLE001 - what is not explained is raised again
        raise _explained(error) from None


def _explained(error: Exception) -> Exception:
    """The failure that says it in one line; the error itself when it is a fault of ours."""
    from fhir_service.interface.outcomes import UNAVAILABLE, FhirError
    from fhir_service.store.migrations import StoreVersion
    from fhir_service.store.opening import StoreBusy
    from fhir_service.writing.commits import CommitFailed

    if isinstance(error, StoreBusy):
        return Failed(str(error), BUSY)
    if isinstance(error, CommitFailed):
        return Failed("the database did not confirm the change; whether it is stored is not known")
    if isinstance(error, FhirError) and error.outcome is UNAVAILABLE:
        return Failed("the database does not answer; the change is not stored")
    return Failed(str(error)) if isinstance(error, StoreVersion | OSError | ValueError) else error
