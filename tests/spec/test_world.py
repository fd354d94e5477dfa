"""The reference world is FHIR R4: fhir.resources, the independent referee, parses every resource of it."""

import json
from importlib import import_module
from typing import Any

import pytest

from tests.spec.casebook import to_json, world


@pytest.mark.parametrize("target", world())
def test_a_resource_of_the_world_is_fhir_r4(target: str) -> None:
    resource = world()[target]
    name = resource["resourceType"]
    model: Any = getattr(import_module(f"fhir.resources.R4B.{name.lower()}"), name)
    model.model_validate_json(to_json(resource))


def test_references_of_the_world_resolve_within_it() -> None:
    allowed = {"Organization/org1", "Practitioner/automation"}
    for resource in world().values():
        text = json.loads(to_json(resource))
        assert set(references(text)) <= set(world()) | allowed, resource["id"]


def references(value: Any) -> list[str]:
    """Every `reference` within a value."""
    match value:
        case dict():
            own = [value["reference"]] if isinstance(value.get("reference"), str) else []
            return own + [found for part in value.values() for found in references(part)]
        case list():
            return [found for part in value for found in references(part)]
        case _:
            return []
