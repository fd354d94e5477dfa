"""Helpers of the commands: common options, progress on a terminal, a session at the target, output as text or JSON."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from fhir_service.paths import matching
from pipelines.home.batch import printable_name
from pipelines.home.progress import Progress

if TYPE_CHECKING:
    from pipelines.session.session import Session


class OpenSession(Protocol):
    """A function that opens a session, see `open_session`."""

    def __call__(self, strict: bool = False, anew: bool = False) -> AbstractContextManager["Session"]: ...


@dataclass(frozen=True)
class Options:
    """The options before the name of the command."""

    home: Path
    feeds: tuple[Path, ...]


class CommandAnswer(Protocol):
    """The result of a command, printable as text or as JSON, to which `print_answer` adds the exit code."""

    @property
    def exit_code(self) -> int: ...
    def as_json(self) -> dict[str, Any]: ...
    def lines(self) -> Iterable[str]: ...


Work = Callable[["Session"], CommandAnswer]
"""A command's work in a session; returns its result."""


insecure_option = click.option("--insecure", is_flag=True, help="Allow http:// to a target beyond this machine.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")


class SomePath(click.Path):
    """A path that is not empty. An empty path, as of an unset variable of the shell, would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty; is a shell variable not set?", param, ctx)
        return super().convert(value, param, ctx)


class NameArgument(click.types.StringParamType):
    """A text of the command line. Bytes that are not UTF-8 become `?`, so that the name matches no batch."""

    def convert(self, *given: Any) -> str:
        return str(super().convert(*given)).encode(errors="replace").decode()


strict_option = click.option(
    "--strict", is_flag=True, help="Reject records by this project's own rules too if the target is not fhir-service."
)
batch_option = click.option("--batch", "-b", type=NameArgument(), help="Only those of this batch.")
with_reason = click.option("--why", type=NameArgument(), help="The reason, kept on record with your name and the time.")


@contextmanager
def showing_progress() -> Iterator[Progress]:
    """Yield progress on standard error, and close it at the end."""
    from pipelines.home.progress_bars import progress_on

    progress = progress_on(sys.stderr)
    try:
        yield progress
    finally:
        progress.close()


def as_text(lines: Iterable[str]) -> str:
    """Return lines without control characters. Column names of a file may hold some, and a terminal would obey them."""
    return "\n".join(map(printable_name, lines))


def print_answer(answer: CommandAnswer, as_json: bool, target: str | None = None) -> int:
    """Print the result of a command, after the target if it is given; return its exit code."""
    head = {"target": target} if target else {}
    if as_json:
        click.echo(json.dumps({**head, **answer.as_json(), "exit_code": answer.exit_code}, indent=1))
    else:
        click.echo(as_text([*(f"{name}: {said}" for name, said in head.items()), *answer.lines()]))
    return answer.exit_code


@dataclass(frozen=True)
class AtTarget(Options):
    """The options of a command that works at a target. why: the reason for a decision, if the command takes one."""

    insecure: bool
    as_json: bool = False
    why: str | None = None

    @contextmanager
    def opening(self, environ: Mapping[str, str] = os.environ) -> Iterator["OpenSession"]:
        """Begin the bundled service if it is the target; yield a function that opens a session there.

        A command imports what it needs before it calls this function, while the service starts.
        """
        from pipelines.home.preparing import prepare_home
        from pipelines.session.bundled import bundled_service, is_bundled

        prepare_home(self.home)
        with showing_progress() as progress, ExitStack() as stack:
            begun = None
            if is_bundled(environ):
                begun = stack.enter_context(bundled_service(self.home, environ, progress.say))
            from pipelines.session.opening import open_session

            def open_it(strict: bool = False, anew: bool = False) -> AbstractContextManager["Session"]:
                return open_session(
                    self.home, environ, self.feeds, self.insecure, strict, progress, anew, self.why, begun
                )

            yield open_it

    def answer(
        self,
        load: Callable[[], Work],
        anew: bool = False,
        then: Callable[["Session", Any], None] = lambda *_: None,
    ) -> int:
        """Run a command's work in a session at the target, print its result with the target, and return its exit code.

        load: imports what the command needs, while the bundled service starts, and returns the work. anew: True to
        begin a new journal with the rows of the ledger if the journal is lost. then: called in the same session after
        the result is printed.
        """
        with self.opening() as open_it:
            work = load()
            with open_it(anew=anew) as session:
                done = work(session)
                session.progress.close()  # progress bars would be drawn over printed text
                code = print_answer(done, self.as_json, session.connection.label)
                then(session, done)
        return code


def with_target(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command its `AtTarget`, with the options `--insecure` and `--json`, and with `--why` if it takes that."""

    @json_option
    @insecure_option
    @click.pass_obj
    @wraps(command)
    def at_target(options: Options, /, insecure: bool, as_json: bool, why: str | None = None, **given: Any) -> int:
        return command(AtTarget(options.home, options.feeds, insecure, as_json, why), **given)

    return at_target


def write_figures_of(home: Path) -> None:
    """Write `metrics.prom` of a home."""
    from pipelines.importing.prometheus_figures import write_figures_of as write

    write(home, os.environ)


def no_batch(batch: str) -> str:
    """Return the message for a batch that does not exist."""
    return f"{batch}: no such batch (chartferry status lists them)"


def check_begun(home: Path) -> None:
    """Raise `NotPossible` if the home never received a file: it may be a wrong folder, and would look fine.

    A home that lost its ledger still has its batches, here or in an object store.
    """
    from pipelines.home.inbox import BATCHES
    from pipelines.ledger.tables import NotPossible
    from pipelines.session.ledger import has_ledger, nothing_in

    if not (has_ledger(home, os.environ) or os.environ.get(BATCHES) or any(matching(home / "batches", "*-*/sha256"))):
        raise NotPossible(nothing_in(home))


def check_batch(home: Path, batch: str | None) -> None:
    """Raise `NotPossible` if the home does not know the named batch, or if no batch is named and the home has none."""
    from pipelines.importing.status import batch_status
    from pipelines.ledger.tables import NotPossible

    if batch is None:
        check_begun(home)
    elif batch_status(home, os.environ, batch) is None:
        raise NotPossible(no_batch(batch))
