"""Profiles of targets: facts about servers that no CapabilityStatement has, in small TOML files.

A profile belongs to the software that the statement names. Files of the user win over those of this program.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fhir_service.paths import matching
from pipelines.client.capabilities import Capabilities
from pipelines.home.exits import BadSetting
from pipelines.home.toml_files import read_toml

BUILTIN = Path(__file__).with_name("targets")
INTERFACE = "interface"
ROWS_A_BUNDLE = 500
"""The most rows of a bundle, unless a profile has fewer."""


class Profile(BaseModel):
    """A profile: the content of its file, and the file's name.

    software: the name in the statements of its servers. balances: compute balances before sending, since the target
    keeps none. checks_references: the target itself refuses a row that refers to something missing. total: the value of
    `_total` with which a search counts its results. offset: the parameter of a link that counts resources. conflict:
    the HTTP status of an update that another one overtook. not_done: HTTP statuses from 500 on with which, given an
    OperationOutcome, surely nothing of the request was done. rows_a_bundle: the most rows in a bundle. per_second: the
    most requests a second. elements: by type and name, the value to send where the interface has `{}`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = INTERFACE
    software: str = ""
    balances: bool = False
    checks_references: bool = False
    total: str | None = Field(None, pattern=r"^[a-z]{1,20}$")
    offset: str = Field("_offset", pattern=r"^[A-Za-z_-]{1,64}$")
    conflict: int = Field(412, ge=400, le=499)
    not_done: tuple[Annotated[int, Field(ge=500, le=599)], ...] = (503,)
    rows_a_bundle: int | None = Field(None, ge=1, le=ROWS_A_BUNDLE)
    per_second: float | None = Field(None, ge=0.01, le=1e6)
    elements: dict[str, dict[str, dict[str, Any]]] = {}

    @property
    def most_rows(self) -> int:
        """The most rows that a bundle may have."""
        return self.rows_a_bundle or ROWS_A_BUNDLE

    def words(self, resource_type: str) -> dict[str, str]:
        """Return members of a body as the interface has them, each with its replacement at this target."""
        named = self.elements.get(resource_type, {})
        return {member(name, {}): member(name, value) for name, value in named.items()}


SHOWN = {"PaymentNotice": {name: {"display": "Unused"} for name in ("payment", "recipient")}}
"""By type, values that the interface shows where it accepts `{}`. Strict servers refuse `{}`, as FHIR demands."""
ACCURATE = "accurate"
PLAIN = Profile()
"""The profile of a target that no file describes."""


def as_declared(profile: Profile, capabilities: Capabilities) -> Profile:
    """Return the profile, adapted to the capabilities that a target declares.

    For another server than the interface, failures do not prove that nothing was done, empty elements get content, and
    searches ask for a count, unless its profile says otherwise.
    """
    if capabilities.store_id or not capabilities.beyond_interface:
        return profile
    said = profile.elements
    elements = {kind: shown | said.get(kind, {}) for kind, shown in SHOWN.items()}
    not_done = profile.not_done if "not_done" in profile.model_fields_set else ()
    changed = {"not_done": not_done, "elements": said | elements, "total": profile.total or ACCURATE}
    return profile.model_copy(update=changed)


def member(name: str, value: Any) -> str:
    """Return a member of a JSON object in the form that bodies have."""
    return f'"{name}":{json.dumps(value, separators=(",", ":"), ensure_ascii=False)}'


def profile_for(software: str | None, folder: Path | None = None) -> Profile:
    """Return the profile of a target by its software, else that of the interface. Raises `BadSetting`."""
    plain = PLAIN
    for profile in _all(folder):
        if software is not None and profile.software == software:
            return profile
        plain = profile if profile.name == INTERFACE and plain is PLAIN else plain
    return plain


def _all(folder: Path | None) -> Iterator[Profile]:
    for each in (folder, BUILTIN):
        for path in matching(each, "*.toml") if each else ():
            yield _read(path)


def _read(path: Path) -> Profile:
    said = read_toml(path, BadSetting)
    if "name" in said:
        raise BadSetting(f"{path.name}: name: it is that of the file")
    try:
        return Profile.model_validate({**said, "name": path.stem})
    except ValidationError as error:
        first = error.errors()[0]
        raise BadSetting(f"{path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
