"""`fhir-service`: the commands of the service and of its store. The work is in the modules that they call."""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from fhir_service.admin.failing import Failed, PlainCommands, plainly
from fhir_service.admin.running_service import Door
from fhir_service.paths import exists
from fhir_service.settings import SettingError, Settings

USAGE, REFUSED, DAMAGED = 2, 3, 4
_LOOKS, _LOOKS_OF_SERVE, _PAUSE = 30, 100, 0.1
"""How often a command, and `serve`, look for a store that another process has, and the seconds between."""


def _settings(**flags: Any) -> Settings:
    try:
        return Settings.read(os.environ, **flags)
    except SettingError as error:
        raise Failed(str(error), USAGE) from None


def _perform(store: str | None, operation: str, arguments: dict[str, Any], create: bool = False) -> dict[str, Any]:
    """Do an operation on a store, through the service that has it open, or else in this process.

    Wait for a while if the store is taken and no service answers: a service may be starting, or another command may
    have the store for a moment.
    """
    settings = _settings(store=store)
    with plainly(settings.store_path):
        looks = 0
        while True:
            if door := Door.of(settings.store_path):
                # Connection refused: the service has ended, and another process may have its process id.
                with suppress(ConnectionRefusedError):
                    return door.ask(operation, arguments)
            from fhir_service.admin.actions import perform
            from fhir_service.store.opening import StoreBusy

            try:
                return perform(settings, operation, arguments, create)
            except StoreBusy:
                if (looks := looks + 1) == _LOOKS:
                    raise
            time.sleep(_PAUSE)


Command = Callable[..., None]
_store: Callable[[Command], Command] = click.option(
    "--store", metavar="S", help="A DuckDB file, or a database URL. [env: FHIR_SERVICE_STORE]"
)


@click.group(cls=PlainCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="chartferry")
def main() -> None:
    """A clinical FHIR R4 interface over a store of its own.

    Every setting can also be given as FHIR_SERVICE_<NAME> in the environment; a flag wins.
    """
    os.umask(0o077)


@main.command(cls=click.Command)  # it handles both signals itself
@_store
@click.option("--host", help="The address to listen on. [default: 127.0.0.1]")
@click.option("--port", type=int, help="The port; 0 picks a free one. [default: 8400]")
@click.option("--base-url", metavar="U", help="The address under which clients reach it. [default: http://HOST:PORT]")
@click.option("--workers", type=int, metavar="N", help="Processes; several need a PostgreSQL store. [default: 1]")
@click.option(
    "--interface-only/--with-additions",
    default=None,
    help="Serve only what the interface names, or also the additions. [default: with additions]",
)
@click.option(
    "--requests-per-second",
    type=float,
    metavar="R",
    help="The most requests of one client in a second. [default: no limit]",
)
@click.option("--until-stdin-closes", is_flag=True, hidden=True)
@click.option("--shared-socket", type=int, hidden=True)
def serve(until_stdin_closes: bool, shared_socket: int | None, **flags: Any) -> None:
    """Serve the interface until SIGTERM, and finish what is under way."""
    settings = _settings(**flags)
    with plainly(settings.store_path):
        from fhir_service.serving import serve as serving
        from fhir_service.serving.workers import supervise
        from fhir_service.web.log_lines import quiet_logging

        quiet_logging()
        if settings.workers > 1:
            raise SystemExit(supervise(settings, until_stdin_closes))
        _once_free(settings.store_path, lambda: serving.serve(settings, until_stdin_closes, shared_socket))


def _once_free(store: Path | None, serve: Callable[[], None]) -> None:
    """Serve once a command or an ending service has closed the store. Raises StoreBusy if a service keeps it."""
    from fhir_service.store.opening import StoreBusy

    for looks_left in reversed(range(_LOOKS_OF_SERVE)):
        try:
            return serve()
        except StoreBusy:
            if not looks_left or Door.of(store):
                raise
        time.sleep(_PAUSE)
    return None


@main.command()
@_store
@click.option(
    "--refused", metavar="FILE", help="The file for refused records and reasons. [default: <store>.refused.ndjson]"
)
@click.option("--refuse-foreign", is_flag=True, help="Load the other files if one holds no reference data.")
@click.option("--label", metavar="L", help="A name for this load: kept in the store and <store>.loaded.json.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
def load(
    store: str | None,
    refused: str | None,
    refuse_foreign: bool,
    label: str | None,
    as_json: bool,
    paths: Sequence[str],
) -> None:
    """Load reference data: NDJSON files, or folders of them (also .gz)."""
    arguments = {
        "paths": [str(Path(path).absolute()) for path in paths],
        "refused": str(Path(refused).absolute()) if refused else None,
        "refuse_foreign": refuse_foreign,
        "label": label,
    }
    result = _perform(store, "load", arguments, create=True)
    columns = ("type", "created", "unchanged", "updated", "refused", "unresolved")
    if as_json:
        click.echo(json.dumps(result))
    else:
        click.echo(table(columns, [[counts[column] for column in columns] for counts in result["counts"]]))
    if result["refused"]:
        click.echo(f"{result['refused']} refused: see {result['refused_file']}", err=True)
        raise SystemExit(REFUSED)


@main.group()
def client() -> None:
    """Manage the clients that may call the service."""


@client.command("add")
@_store
@click.option("--name", required=True, metavar="N", help="The client's name in `client list`.")
@click.option("--scope", metavar="SCOPES", help="SMART scopes, separated by spaces. [default: system/*.cruds]")
@click.option(
    "--jwks", metavar="FILE or URL", help="Public keys (JWKS or PEM) of a client that signs; it gets no secret."
)
def client_add(store: str | None, name: str, scope: str | None, jwks: str | None) -> None:
    """Add a client. Prints its id and its secret, which is shown only once."""
    arguments = {"name": name, "scope": scope, "keys": _keys(jwks)}
    click.echo(json.dumps(_perform(store, "client-add", arguments, create=True)))


@client.command("keys")
@_store
@click.argument("client_id", metavar="ID")
@click.option("--jwks", metavar="FILE or URL", required=True, help="The new public keys (JWKS or PEM).")
def client_keys(store: str | None, client_id: str, jwks: str) -> None:
    """Replace the public keys of a client that signs."""
    _perform(store, "client-keys", {"client_id": client_id, "keys": _keys(jwks)})
    click.echo(f"changed {client_id}")


def _keys(named: str | None) -> str | None:
    """Return the address of keys as it is, and of a file the JWKS in it. Ends the command for a file without keys."""
    from fhir_service.auth.client_keys import BadKeys, is_address, keys_in

    if named is None or is_address(named):
        return named
    try:
        return keys_in(Path(named))
    except BadKeys as error:
        raise Failed(f"{named}: {error}", USAGE) from None
    except OSError as error:
        raise Failed(f"{named}: {error.strerror}", USAGE) from None


@client.command("list")
@_store
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def client_list(store: str | None, as_json: bool) -> None:
    """List the clients."""
    clients = _perform(store, "client-list", {})["clients"]
    if as_json:
        click.echo(json.dumps(clients))
        return
    columns = ("client_id", "name", "scope", "created_at", "revoked_at")
    click.echo(table(columns, [[found[column] or "" for column in columns] for found in clients]))


@client.command("revoke")
@_store
@click.argument("client_id", metavar="ID")
def client_revoke(store: str | None, client_id: str) -> None:
    """End a client's access; its tokens end at once."""
    _perform(store, "client-revoke", {"client_id": client_id})
    click.echo(f"revoked {client_id}")


@main.command()
@_store
def check(store: str | None) -> None:
    """Verify the store: balances, references, indexes."""
    found = _perform(store, "check", {})["findings"]
    for finding in found:
        label = "notice" if finding["notice"] else "WRONG"
        click.echo(f"{label}  {finding['kind']}  {finding['where']}: {finding['text']}")
    wrong, notices = (Counter(finding["notice"] for finding in found)[notice] for notice in (False, True))
    click.echo(f"{wrong or 'nothing'} wrong, {notices} notices")
    if wrong:
        raise SystemExit(DAMAGED)


@main.command(short_help="Copy a store into a DuckDB file, also while it is in use.")
@_store
@click.argument("to", metavar="FILE")
def copy(store: str | None, to: str) -> None:
    """Copy a store into one DuckDB file, also while services write to it. The copy is a store of its own."""
    click.echo(_perform(store, "copy", {"to": str(Path(to).absolute())})["copy"])


@main.command(short_help="Print names of practitioners and groups as JSON.")
@_store
def names(store: str | None) -> None:
    """Print the names of practitioners and groups by reference, as one JSON object."""
    click.echo(json.dumps(_perform(store, "names", {})["names"], ensure_ascii=False))


@main.command(short_help="Write charges and payments, or patients, as NDJSON.")
@_store
@click.argument("name", type=click.Choice(["charges", "patients"]))
@click.argument("file", metavar="FILE")
def tell(store: str | None, name: str, file: str) -> None:
    """Write charges with their payments, or patients with sex and year of birth, to a file of NDJSON."""
    rows = _perform(store, "tell", {"name": name, "to": str(Path(file).absolute())})["rows"]
    click.echo(f"{rows} {name} written to {file}")


@main.group(invoke_without_command=True, short_help="Show who read and wrote what; verify that no record is missing.")
@_store
@click.option("--patient", metavar="ID", help="Only what touched this patient's data.")
@click.option("--client", metavar="ID", help="Only what this client did.")
@click.option("--since", metavar="TIME", help="Only from this date or instant on; UTC unless it has an offset.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["ndjson", "auditevent"]),
    default="ndjson",
    help="The audit's own records, or FHIR AuditEvents.",
)
@click.pass_context
def audit(
    context: click.Context, store: str | None, patient: str | None, client: str | None, since: str | None, form: str
) -> None:
    """Show who read and wrote what, when, with what outcome: a line of JSON each."""
    context.obj = store
    if context.invoked_subcommand:
        return
    from fhir_service.audit.events import event_of
    from fhir_service.audit.records import read

    try:
        start = datetime.fromisoformat(since) if since else None
    except ValueError:
        raise Failed("--since: a date or an instant such as 2026-01-31T08:00:00+00:00 is expected", USAGE) from None
    path = _audit_path(store)
    for record in read(path, patient, client, start.replace(tzinfo=start.tzinfo or UTC) if start else None):
        click.echo(json.dumps(event_of(record) if form == "auditevent" else record))


def _hashes(_context: click.Context, _option: click.Parameter, given: Sequence[str]) -> list[str]:
    """The hashes that somebody noted down, as the chain writes them."""
    hashes = [each.strip().lower() for each in given]
    for each in hashes:
        if not re.fullmatch("[0-9a-f]{64}", each):
            raise click.BadParameter(f"{each!r} is not a hash: `audit verify` prints it as 64 digits from 0 to f")
    return hashes


@audit.command("verify")
@_store
@click.argument("former", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--noted",
    multiple=True,
    metavar="HASH",
    callback=_hashes,
    help="A hash that an earlier `audit verify` printed; it must still be there.",
)
@click.pass_obj
def audit_verify(named: str | None, store: str | None, former: Sequence[Path], noted: Sequence[str]) -> None:
    """Verify that no record of the audit was cut, changed or removed.

    FILE: an earlier audit file that was moved away.
    """
    from fhir_service.audit.chain import examine, files_of

    with plainly():
        examined = examine(files_of(_audit_path(store or named)), [path.absolute() for path in former], noted)
    lacking = set(noted).difference(*(one.hashes for one in examined))
    for one in examined:
        before = f", {one.unchained} from before the chain" if one.unchained else ""
        click.echo(f"{one.path}: {one.records} records{before}; ends with {one.ends}")
        for number in one.cut:
            click.echo(f"notice  line {number} is not complete: a process ended while it wrote the line")
        for sentence in one.wrong:
            click.echo(f"WRONG  {sentence}")
    for each in sorted(lacking):
        click.echo(f"WRONG  no line has the noted hash {each}: lines were removed or changed, or a file was not named")
    wrong = sum(len(one.wrong) for one in examined) + len(lacking)
    click.echo(f"{wrong or 'nothing'} wrong")
    if wrong:
        raise SystemExit(DAMAGED)


def _audit_path(store: str | None) -> Path:
    """The audit of a store. Ends the command if there is none."""
    from fhir_service.audit.chain import files_of

    settings = _settings(store=store)
    path = settings.audit_path
    if settings.store_path and exists(settings.store_path) and not Door.of(settings.store_path):
        from fhir_service.store.opening import refuse_held

        with plainly():
            refuse_held(settings.store_path)
    if not files_of(path):
        raise Failed(f"there is no audit at {path}: check --store")
    return path


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Lines of aligned columns, numbers to the right, under their names."""
    cells = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    right = [bool(rows) and all(isinstance(row[at], int) for row in rows) for at in range(len(columns))]
    lines = (
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    main()
