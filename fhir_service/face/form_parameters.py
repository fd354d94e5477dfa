"""The parameters that R4 defines for every request: the form of the answer, not the content."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fhir_service.interactions.conditions import bad, pieces
from fhir_service.interactions.paging import Pairs
from fhir_service.interface.outcomes import FhirError, Outcome
from fhir_service.web.http import FHIR_JSON, JSON

NOT_ACCEPTABLE = Outcome(406, "not-supported", "Not acceptable")
MOST_ELEMENTS = 100
"""The most elements in `_elements`."""

OF_WRITES = frozenset(("_format", "_pretty"))
OF_READS = OF_WRITES | {"_summary", "_elements"}
# fhirpy's `count()` sends `_totalMethod`, of another server: whatever it asks for, the total is exact.
OF_SEARCHES = OF_READS | {"_total", "_totalMethod", "_include"}


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form that a request asks its answer to have.

    media: the type of `_format`, None where `Accept` decides.
    sent: these parameters as they were sent, for the links between pages.
    """

    media: str | None = None
    pretty: bool = False
    summary: str = "false"
    elements: tuple[str, ...] = ()
    total: bool = True
    includes: tuple[str, ...] = ()
    sent: tuple[tuple[str, str], ...] = ()

    @property
    def is_part(self) -> bool:
        """True if resources are shown in part."""
        return bool(self.elements) or self.summary != "false"


def form_and_rest(pairs: Pairs, known: Collection[str]) -> tuple[AnswerForm, Pairs]:
    """Return the form that these parameters ask for, and the other parameters. Raises the 400 of bad ones.

    known: the names that have a meaning in this interaction.
    """
    form, others = AnswerForm(), []
    sent: list[tuple[str, str]] = []
    for name, value in pairs:
        if name not in known:
            others.append((name, value))
            continue
        if name != "_include" and any(name == before for before, _ in sent):
            raise bad(name, "the parameter is given twice")
        form = _READERS[name](form, value)
        sent.append((name, value))
    if form.elements and form.summary != "false":
        raise bad("_elements", "either _elements or _summary is expected")
    return replace(form, sent=tuple(sent)), others


def form_alone(pairs: Pairs, known: Collection[str], lenient: bool) -> AnswerForm:
    """Return the form that these parameters ask for, if no others are allowed. Raises the 400 of bad ones."""
    form, others = form_and_rest(pairs, known)
    if form.summary == "count":
        raise bad("_summary", "count is allowed in searches and histories only")
    for name, _ in others:
        if not lenient:
            raise bad(name, "the parameter is not known here")
    return form


_MEDIA = {"json": FHIR_JSON, "text/json": FHIR_JSON, FHIR_JSON: FHIR_JSON, JSON: JSON}


def _format(form: AnswerForm, value: str) -> AnswerForm:
    # An unescaped plus sign arrives as a blank.
    kind = value.partition(";")[0].strip().lower().replace(" ", "+")
    if kind not in _MEDIA:
        raise FhirError(NOT_ACCEPTABLE, "_format must be json")
    return replace(form, media=_MEDIA[kind])


def _pretty(form: AnswerForm, value: str) -> AnswerForm:
    return replace(form, pretty=_one_of("_pretty", value, ("false", "true")) == "true")


def _summary(form: AnswerForm, value: str) -> AnswerForm:
    return replace(form, summary=_one_of("_summary", value, ("true", "text", "data", "count", "false")))


def _elements(form: AnswerForm, value: str) -> AnswerForm:
    names = tuple(dict.fromkeys(pieces(value, ",")))
    if len(names) > MOST_ELEMENTS or not all(re.fullmatch(r"[A-Za-z]\w{0,63}", name, re.ASCII) for name in names):
        raise bad("_elements", f"at most {MOST_ELEMENTS} names of elements are expected, separated by commas")
    return replace(form, elements=names)


def _total(form: AnswerForm, value: str) -> AnswerForm:
    return replace(form, total=_one_of("_total", value, ("none", "estimate", "accurate")) != "none")


def _total_method(form: AnswerForm, _: str) -> AnswerForm:
    return form


def _include(form: AnswerForm, value: str) -> AnswerForm:
    return replace(form, includes=(*form.includes, value))


def _one_of(name: str, value: str, values: Sequence[str]) -> str:
    if value not in values:
        raise bad(name, f"one of {', '.join(values)} is expected")
    return value


_READERS: dict[str, Callable[[AnswerForm, Any], AnswerForm]] = {
    "_format": _format,
    "_pretty": _pretty,
    "_summary": _summary,
    "_elements": _elements,
    "_total": _total,
    "_totalMethod": _total_method,
    "_include": _include,
}
