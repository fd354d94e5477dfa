"""The shapes that all resources share: references, codings, text, extensions.

A value of the wrong shape is a structural problem (400). What a well-formed value may be is a rule's matter.
"""

import re
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from fhir_service.interface.json_text import NOT_READABLE, is_readable
from fhir_service.interface.times import normal_time

ID_PATTERN = r"[A-Za-z0-9\-.]{1,64}"
NO_CONTROLS = r"^[^\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]+$"
CONTROLS = re.compile(r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]")


_ID = re.compile(rf"{ID_PATTERN}\Z")


def is_id(text: str) -> bool:
    """True if a resource can have this id. Other texts are never looked up: PostgreSQL refuses NUL."""
    return _ID.match(text) is not None


# What a header of HTTP can carry.
_CONTENT_TYPE = re.compile(r"[ -~\xa0-\xff]+\Z")


def is_content_type(text: str) -> bool:
    """True if the header of an answer can have this content type."""
    return _CONTENT_TYPE.match(text) is not None


Text = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=NO_CONTROLS)]
Code = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=NO_CONTROLS)]
Uri = Annotated[str, StringConstraints(strict=True, pattern=r"^[^\s\x00-\x20\x7F-\x9F]+$")]
Id = Annotated[str, StringConstraints(strict=True, pattern=rf"^{ID_PATTERN}$")]
Time = Annotated[str, StringConstraints(strict=True), AfterValidator(normal_time)]
Number = Annotated[Decimal, Field(strict=True, allow_inf_nan=False)]


def _readable(number: Decimal) -> Decimal:
    if not is_readable(number):
        raise PydanticCustomError("not_readable", NOT_READABLE)
    return number


ReadableNumber = Annotated[Decimal, Field(strict=True, allow_inf_nan=False), AfterValidator(_readable)]


class Element(BaseModel):
    """An element of a body: nothing unknown in it, nothing converted, no value in an error."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True, populate_by_name=False)


class _Reference(Element):
    display: Text | None = None


class PatientReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^Patient/{ID_PATTERN}$")]
    type: Literal["Patient"] | None = None


class PractitionerReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^Practitioner/{ID_PATTERN}$")]
    type: Literal["Practitioner"] | None = None


class GroupReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^Group/{ID_PATTERN}$")]
    type: Literal["Group"] | None = None


class EncounterReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^Encounter/{ID_PATTERN}$")]
    type: Literal["Encounter"] | None = None


class ClaimReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^Claim/{ID_PATTERN}$")]
    type: Literal["Claim"] | None = None


class AuthorReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^(?:Practitioner|Patient)/{ID_PATTERN}$")]
    type: Literal["Practitioner", "Patient"] | None = None

    @model_validator(mode="after")
    def type_agrees(self) -> Self:
        if self.type and not self.reference.startswith(self.type):
            raise PydanticCustomError("type_agrees", "type contradicts reference")
        return self


class Coding(Element):
    """A coding whose three parts are all required, as in answers and options."""

    system: Uri
    code: Code
    display: Text


class Identifier(Element):
    """A business identifier as a client of the conditional create sends it."""

    system: Uri
    value: Text


class UnusedObject(Element):
    """An object that is required and means nothing: the members of a reference are accepted and ignored."""

    reference: str | None = None
    type: str | None = None
    identifier: dict[str, Any] | None = None
    display: str | None = None


class Meta(BaseModel):
    """`meta`, accepted and ignored whatever it holds."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)


def id_of(reference: str) -> str:
    """Return the id of a reference: `p1` of `Patient/p1`."""
    return reference.partition("/")[2]


def reference(target: str, display: str | None = None) -> dict[str, str]:
    """A reference as responses show it: with `type`."""
    shown = {"reference": target, "type": target.partition("/")[0]}
    return shown | {"display": display} if display else shown
