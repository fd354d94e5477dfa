"""The actions of commands on a store."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from sqlalchemy import select

from fhir_service.admin import checks
from fhir_service.admin import clients as admin_clients
from fhir_service.admin.copying import copy_store
from fhir_service.admin.running_service import Arguments, CommandError, Result
from fhir_service.admin.table_data import tell
from fhir_service.reference import loading as reference
from fhir_service.reference.reading import ForeignFile, files, first_of_foreign, refuse_foreign
from fhir_service.service import Service
from fhir_service.settings import Settings
from fhir_service.store.load_label import say_label, set_label
from fhir_service.store.tables import RECORD

NAMED = ("Practitioner", "Group")
"""The types of reference data whose names `names` prints: no patients."""
NOT_REFERENCE_DATA = 2
"""The exit code of a load whose file holds something else: a mistake in the command."""


def _load(service: Service, arguments: Arguments) -> Result:
    """Load reference data. Return `counts` by type, how many were refused, and the file that lists these or None."""
    paths = [Path(path) for path in arguments["paths"]]
    try:
        apart = _foreign(files(paths), arguments.get("refuse_foreign", False))
        report = reference.load(
            paths, service.writer, service.store, service.clock, service.new_id, service.site, apart
        )
    except FileNotFoundError as error:
        raise CommandError(str(error)) from None
    except ForeignFile as error:
        raise CommandError(str(error), NOT_REFERENCE_DATA) from None
    if label := arguments.get("label"):
        service.writer.transact(lambda connection: set_label(connection, label))
        say_label(service.settings.store_path, label)
    file = Path(arguments["refused"]) if arguments.get("refused") else _refused_file(service.settings)
    if report["refused"]:
        _write_refused(file, report["refused"])
    elif not arguments.get("refused"):
        file.unlink(missing_ok=True)  # what an earlier load refused is not what this one did
    refused = len(report["refused"])
    return {"counts": report["counts"], "refused": refused, "refused_file": str(file) if refused else None}


def _foreign(paths: list[Path], refused: bool) -> set[Path]:
    """Return the files without reference data, if each is to be refused like a record; otherwise raise ForeignFile."""
    if not refused:
        refuse_foreign(paths)
    return {path for path in paths if first_of_foreign(path)} if refused else set()


def _refused_file(settings: Settings) -> Path:
    """Return the path of the refused records: `<store>.refused.ndjson`."""
    store = settings.store_path or Path("store").absolute()
    return store.with_name(f"{store.name}.refused.ndjson")


def _write_refused(file: Path, refused: Iterable[reference.RefusedRecord]) -> None:
    try:
        with file.open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in refused)
    except OSError as error:
        raise CommandError(f"the records are loaded, but {file} cannot be written: {error.strerror}") from None


def _check(service: Service, _: Arguments) -> Result:
    return {"findings": [asdict(finding) for finding in checks.check_store(service.store, service.site)]}


def _copy(service: Service, arguments: Arguments) -> Result:
    copy_store(service, Path(arguments["to"]))
    return {"copy": arguments["to"]}


def _names(service: Service, _: Arguments) -> Result:
    """Return `names`: those of practitioners and groups, by reference."""
    named = select(RECORD.c.reference, RECORD.c.display).where(RECORD.c.type.in_(NAMED), RECORD.c.display.is_not(None))
    with service.store.read() as connection:
        return {"names": {row.reference: row.display for row in connection.execute(named.order_by(RECORD.c.reference))}}


def _tell(service: Service, arguments: Arguments) -> Result:
    """Write data to the file `to`. Return the number of `rows`."""
    file = Path(arguments["to"])
    try:
        return {"rows": tell(service.store, arguments["name"], file)}
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None


OPERATIONS: dict[str, Callable[[Service, Arguments], Result]] = {
    "load": _load,
    "client-add": admin_clients.add,
    "client-keys": admin_clients.change_keys,
    "client-list": admin_clients.list_all,
    "client-revoke": admin_clients.revoke,
    "check": _check,
    "copy": _copy,
    "names": _names,
    "tell": _tell,
}


def perform(settings: Settings, operation: str, arguments: Arguments, create: bool = False) -> Result:
    """Do an operation on a store that no service has open. Raises CommandError, and what `Service.open` raises."""
    service = Service.open(settings, create=create)
    try:
        return OPERATIONS[operation](service, arguments)
    finally:
        service.close()
