"""`_include`: the resources to which those of a page refer, by the references that are declared for a search.

A Questionnaire is shown as the service shows it. People are shown as they were loaded. What the caller may not read is
left out.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Column, Connection, func, select

from fhir_service.face.form_parameters import AnswerForm
from fhir_service.face.rendering import in_form, resource_of
from fhir_service.interactions.conditions import bad
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.outcomes import TOO_LARGE, FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.scopes import Caller
from fhir_service.interface.vocabulary import Param, Resource
from fhir_service.service import Service
from fhir_service.store.bodies import StoredVersion
from fhir_service.store.page_bytes import MOST
from fhir_service.store.tables import BODIES, RECORD


def includable(resource: Resource) -> dict[str, Param]:
    """Return the parameters of a type for `_include`, by the names that it uses."""
    return {f"{resource.name}:{param.name}": param for param in resource.params if param.target and not param.through}


def wanted_includes(resource: Resource, texts: Sequence[str], lenient: bool) -> list[Param]:
    """Return the parameters whose targets are to be included. Raises the 400 of an unknown one."""
    known = includable(resource)
    found: dict[str, Param] = {}
    for text in texts:
        name, _, target = text.partition(":")[2].partition(":")
        param = known.get(f"{text.partition(':')[0]}:{name}")
        if text == "*":
            found |= known
        elif param and target in ("", param.target):
            found[param.name] = param
        elif not lenient:
            raise bad("_include", f"one of {', '.join(known)} is expected" if known else "nothing can be included here")
    return list({param.name: param for param in found.values()}.values())


def included_resources(
    service: Service, caller: Caller, params: Sequence[Param], page: Iterable[StoredVersion], asked: AnswerForm
) -> Iterator[dict[str, Any]]:
    """Yield the resources to which those of a page refer, each once."""
    targets: dict[str, dict[str, None]] = defaultdict(dict)
    bodies = [parse_json(found.body) for found in page] if params else []
    for param in params:
        if caller.may(param.target, "r"):
            targets[param.target] |= dict.fromkeys(filter(None, (param.values(body) for body in bodies)))
    for name, ids in targets.items():
        yield from _of_service(service, name, ids, asked) if name in RESOURCES else _loaded(service, name, ids, asked)


def _of_service(service: Service, name: str, ids: Iterable[str], asked: AnswerForm) -> Iterator[dict[str, Any]]:
    with service.reader.state() as state:
        _refuse_too_large(state.connection, BODIES[name].c.id, wanted := list(ids))
        found = state.fetch(RESOURCES[name], wanted)
    for one in found.values():
        yield resource_of(one, asked)


def _loaded(service: Service, name: str, ids: Iterable[str], asked: AnswerForm) -> Iterator[dict[str, Any]]:
    references = [f"{name}/{each}" for each in ids]
    with service.store.read(asked=True) as connection:
        _refuse_too_large(connection, RECORD.c.reference, references)
        bodies = connection.execute(select(RECORD.c.body).where(RECORD.c.reference.in_(references))).scalars().all()
    for body in bodies:
        yield in_form(parse_json(body), asked)


def _refuse_too_large(connection: Connection, key: Column[str], keys: Collection[str]) -> None:
    """Raise the 413 of several bodies that have more bytes than a page together."""
    size = select(func.sum(func.bit_length(key.table.c.body))).where(key.in_(keys))
    if len(keys) > 1 and (connection.execute(size).scalar() or 0) > 8 * MOST:
        raise FhirError(
            TOO_LARGE, "the resources to include are too large: ask for fewer with _count", text="Answer too large"
        )
