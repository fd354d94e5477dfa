"""The elements of a resource that `_summary` and `_elements` keep, as R4 defines them for its type."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from fhir_service.face.form_parameters import AnswerForm

ALWAYS = ("resourceType", "id", "meta", "implicitRules")
SUBSETTED = {"system": "http://terminology.hl7.org/CodeSystem/v3-ObservationValue", "code": "SUBSETTED"}


@dataclass(frozen=True, slots=True)
class TypeElements:
    """Facts of R4 about the elements of a type.

    summary: those that a summary has. mandatory: those without which a resource is not valid.
    choices: the name without its type of an element such as `effectiveDateTime`.
    """

    summary: frozenset[str]
    mandatory: frozenset[str]
    choices: dict[str, str]


@cache
def elements_of(resource_type: str) -> TypeElements:
    """Return the facts about a type. Their library is slow to import."""
    from fhir.resources.R4B import get_fhir_model_class

    fields = get_fhir_model_class(resource_type).model_fields.items()
    facts: list[tuple[str, bool, Any]] = [
        (field.alias or name, field.is_required(), field.json_schema_extra or {}) for name, field in fields
    ]
    return TypeElements(
        frozenset(name for name, _, fact in facts if fact.get("summary_element_property")),
        frozenset(name for name, required, fact in facts if required or fact.get("element_required")),
        {name: fact["one_of_many"] for name, _, fact in facts if "one_of_many" in fact},
    )


def part(body: dict[str, Any], asked: AnswerForm) -> dict[str, Any]:
    """Return the requested part of a resource, marked as a part."""
    facts = elements_of(body["resourceType"])
    kept = {name: value for name, value in body.items() if _is_kept(name, facts, asked)}
    meta = body.get("meta", {})
    return kept | {"meta": meta | {"tag": [*meta.get("tag", ()), SUBSETTED]}}


def is_part(body: Any) -> bool:
    """True if a body is marked as a part of a resource."""
    meta = body.get("meta") if isinstance(body, dict) else None
    tags = meta.get("tag") if isinstance(meta, dict) else None
    return isinstance(tags, list) and any(isinstance(tag, dict) and tag.items() >= SUBSETTED.items() for tag in tags)


def _is_kept(name: str, facts: TypeElements, asked: AnswerForm) -> bool:
    if name in ALWAYS:
        return True
    if asked.elements:
        return name in facts.mandatory or name in asked.elements or facts.choices.get(name) in asked.elements
    if asked.summary == "data":
        return name != "text"
    if asked.summary == "text":
        return name == "text" or name in facts.mandatory
    return name in facts.summary or name in facts.mandatory
