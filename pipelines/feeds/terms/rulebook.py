"""The rules that a reason may name: sentence, basis, and advice. Their texts are in `rules.toml`."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from fhir_service.interface.registry import RESOURCES

GIVEN, DECIDED, IMPORTER, TARGET = "interface", "decision", "importer", "target"
BASES = {
    GIVEN: "given by the interface: every target with this interface says so",
    DECIDED: "decided by this project, where the interface is silent: another target may take such a record",
    IMPORTER: "a rule of the import, about the file, its feed or the ledger",
    TARGET: "the target's own code for a refusal",
}
"""The meaning of each basis of a rule."""


class RuleEntry(NamedTuple):
    """A rule for a person to read. basis: a key of `BASES`. sentence: true when all is well. do: the advice."""

    basis: str
    sentence: str
    do: str


@cache
def rules() -> Mapping[str, RuleEntry]:
    """Return every rule by id, in order.

    A rule of the interface has its basis from the code, and its sentence too unless `rules.toml` has one.
    """
    texts = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))
    declared = {rule.id: rule for resource in RESOURCES.values() for rule in resource.rules}
    for rule_id, rule in declared.items():
        texts[rule_id] = {"sentence": rule.sentence} | texts[rule_id] | {"basis": GIVEN if rule.given else DECIDED}
    return MappingProxyType({rule_id: RuleEntry(**texts[rule_id]) for rule_id in sorted(texts)})


def basis_of(rule_id: str) -> str | None:
    """Return the basis of a rule; None for a code that is no rule."""
    entry = rules().get(rule_id)
    return entry.basis if entry else None
