"""What commands share: the options before them, progress on a terminal, work at a target, answers as text or JSON."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from pipelines.home.batch import shown
from pipelines.home.progress import Progress, progress_on

if TYPE_CHECKING:
    from pipelines.session.session import Session


@dataclass(frozen=True)
class Options:
    """What stands before the command."""

    home: Path
    feeds: tuple[Path, ...]


class Answer(Protocol):
    """What a command found or did."""

    @property
    def exit_code(self) -> int: ...
    def as_json(self) -> dict[str, Any]: ...
    def lines(self) -> Iterable[str]: ...


insecure_option = click.option("--insecure", is_flag=True, help="Allow http:// to a target beyond this machine.")
target_options = (
    insecure_option,
    click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document."),
)


def _as_characters(_: click.Context, __: click.Parameter, said: str | None) -> str | None:
    """A text of another encoding, as a terminal may send it, with `?` where it has no character."""
    return None if said is None else said.encode(errors="replace").decode()


with_reason = click.option(
    "--why", callback=_as_characters, help="The reason, kept on record with your name and the time."
)


def with_target(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in target_options:
        command = option(command)
    return command


@contextmanager
def showing_progress() -> Iterator[Progress]:
    progress = progress_on(sys.stderr)
    try:
        yield progress
    finally:
        progress.close()


def as_text(lines: Iterable[str]) -> str:
    """Lines for a terminal, which obeys control characters: names of a file's columns may hold some."""
    return "\n".join(map(shown, lines))


def print_answer(answer: Answer, as_json: bool) -> int:
    """Prints what a command found or did; gives its exit code."""
    click.echo(json.dumps(answer.as_json(), indent=1) if as_json else as_text(answer.lines()))
    return answer.exit_code


def at_target(
    options: Options,
    insecure: bool,
    as_json: bool,
    work: Callable[["Session"], Answer],
    why: str | None = None,
    anew: bool = False,
) -> int:
    """Do something at the target of the environment and print what came of it.

    why: the reason, of a decision. anew: whether a journal that is gone is begun with what the ledger has.
    """
    from pipelines.session.session import open_session

    with (
        showing_progress() as progress,
        open_session(
            options.home, os.environ, options.feeds, insecure, progress=progress, anew=anew, why=why
        ) as session,
    ):
        done, label = work(session), session.connection.label
    if as_json:
        click.echo(json.dumps({"target": label, **done.as_json()}, indent=1))
    else:
        click.echo(as_text([f"target: {label}", *done.lines()]))
    return done.exit_code


class Name(click.types.StringParamType):
    """A name given on the command line, also where its bytes are no UTF-8: no batch has that name."""

    def convert(self, *given: Any) -> str:
        return str(super().convert(*given)).encode(errors="replace").decode()


def no_batch(batch: str) -> str:
    """What is said of a batch that nobody knows."""
    return f"{batch}: no such batch (chartferry status lists them)"


def no_such_batch(options: Options, batch: str | None) -> bool:
    """Whether a batch is named that this home does not know; says so."""
    from pipelines.importing.status import batch_status

    missing = batch is not None and batch_status(options.home, os.environ, batch) is None
    if batch is not None and missing:
        click.echo(f"chartferry: {no_batch(batch)}", err=True)
    return missing
