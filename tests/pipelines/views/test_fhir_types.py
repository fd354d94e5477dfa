"""The table of R4's types agrees with the library that models R4. `GOLDEN_UPDATE=1` writes it anew."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from fhir.resources.R4B import fhirtypes, get_fhir_model_class

from pipelines.reports.views import fhir_types
from pipelines.reports.views.fhir_types import ABSTRACT, CHOICE, PRIMITIVES, Element, with_type

TABLE = Path(fhir_types.__file__).with_name("fhir_types.txt")
UNKNOWN = {"Resource", "Element", "BackboneElement"}
BY_CLASS = {name.lower(): name for name in PRIMITIVES} | {"bool": "boolean", "uuidversion": "uuid"}
OF_ALL = {"resourceType": Element("code", False), "id": Element("id", False)}


NAMES = sorted(name.removesuffix("Type") for name in dir(fhirtypes) if re.fullmatch("[A-Z][A-Za-z]*Type", name))
SOME = ("Address", "BundleEntry", "DiagnosticReport", "Dosage", "ObservationComponent", "Patient", "Task")
"""Some that `make test` looks at: a class is made when it is first asked for, and all of them take seconds."""


def models(names: Iterable[str]) -> dict[str, Any]:
    """The library's class of each type that has a line of its own."""
    found = {}
    for name in names:
        with suppress(ValueError):
            found[name] = get_fhir_model_class(name)
    return {name: model for name, model in found.items() if name not in ABSTRACT and extended(model)}


def element(field: Any) -> Element:
    said, many = field.annotation, False
    while (origin := get_origin(said)) in (list, Union, UnionType):
        many, said = many or origin is list, get_args(said)[0]
    name = type(get_args(said)[-1]).__name__ if origin is Annotated else said.__name__
    known = BY_CLASS.get(name.lower(), name.removesuffix("Type"))
    return Element(None if known in UNKNOWN else known, many, (field.json_schema_extra or {}).get("one_of_many"))


def elements(model: Any) -> dict[str, Element]:
    fields = {
        field.alias or name: element(field)
        for name, field in model.model_fields.items()
        if (field.json_schema_extra or {}).get("element_property")
    }
    return fields | OF_ALL


def extended(model: Any) -> str | None:
    return next((base.__name__ for base in model.__mro__[1:] if base.__name__ in ABSTRACT), None)


def line(name: str, model: Any) -> str:
    """The line of a type, as the table has it."""
    own = dict[str, list[str]]()
    base = str(extended(model))
    of_base = {each.partition(":")[0] for each in ABSTRACT[base].split()} | set(OF_ALL)
    for key, (kind, many, choice) in elements(model).items():
        if key not in of_base:
            own.setdefault(f"{choice}{CHOICE}" if choice else key, []).append(f"{kind or '?'}{'*' * many}")
            assert choice is None or with_type(choice, str(kind)) == key
    return " ".join([name, base, *(f"{key}:{'|'.join(types)}" for key, types in own.items())])


@pytest.mark.long
def test_the_table_has_every_type_as_the_library_models_it() -> None:
    """VIEW-01"""
    made = "".join(f"{line(*each)}\n" for each in models(NAMES).items())
    if os.environ.get("GOLDEN_UPDATE"):
        TABLE.write_text(made, encoding="ascii")
    assert TABLE.read_text(encoding="ascii") == made


def test_the_table_has_some_types_as_the_library_models_them() -> None:
    """VIEW-01"""
    lines = TABLE.read_text(encoding="ascii").splitlines()
    found = models(SOME)
    assert {*SOME} == found.keys()
    assert [line(*each) for each in found.items() if line(*each) not in lines] == []


@pytest.mark.parametrize("names", [SOME, pytest.param(NAMES, marks=pytest.mark.long)], ids=["some", "all"])
def test_the_table_of_types_is_read_as_the_library_models_it(names: Iterable[str]) -> None:
    """VIEW-01"""
    of = models(names)
    assert {name: dict(fhir_types.elements(name)) for name in of} == {
        name: elements(model) for name, model in of.items()
    }
    resources = {name for name, model in of.items() if "Resource" in {base.__name__ for base in model.__mro__}}
    assert {name for name in of if fhir_types.is_resource(name)} == resources > {"Patient", "Task"}


@pytest.mark.parametrize("name", ["", "Nothing", "patient", "string", "Element", "DomainResource"])
def test_an_unknown_name_is_no_type_and_no_resource(name: str) -> None:
    """VIEW-01"""
    assert fhir_types.elements(name) == {}
    assert not fhir_types.is_resource(name)
    assert fhir_types.is_type(name) is (name in {"string", "Element", "DomainResource"})
