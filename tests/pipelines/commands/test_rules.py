"""`chartferry rules` and a rehearsal say of each rule what it says, who says so, and what to do."""

import re
from pathlib import Path

import pytest

from fhir_service.interface.registry import RESOURCES
from pipelines.feeds.terms.rulebook import BASES, rules
from tests.spec.casebook import requirements

ROOT = Path(__file__).parents[3]
NAMED = (
    "KEY-TAKEN|NOT-OURS|TAKEN-BACK|LOOKS-LIKE-TOTAL|TEXT-BETWEEN|ZIP-FILES|JOIN-PARTNERS|"
    "WORKBOOK-ZEROS|WORKBOOK-HIDDEN|WORKBOOK-SHEETS"
)
ID = re.compile(rf'"((?:(?!ICD)[A-Z]+-)+\d\d|{NAMED})"')
NO_REASONS = {"QR-UPDATE-04", "QR-UPDATE-05", "QR-UPDATE-06", "QR-UPDATE-07", "TASK-UPDATE-15"}
"""Rules of updates that an import does not send."""
OWN = set(NAMED.split("|"))
OWN |= {"business-rule", "invalid", "multiple-matches", "too-long"}


def test_every_rule_that_a_reason_may_name_is_explained():
    code = [*ROOT.glob("pipelines/**/*.py"), *ROOT.glob("fhir_service/interface/**/*.py")]
    named = {found for path in code for found in ID.findall(path.read_text(encoding="utf-8"))} - NO_REASONS
    assert len(named) > 80
    assert named - rules().keys() == set()
    assert rules().keys() - requirements().keys() == OWN


def test_each_rule_states_the_basis_that_the_code_gives_and_has_short_sentences():
    for resource in RESOURCES.values():
        for rule in resource.rules:
            assert rules()[rule.id].basis == ("interface" if rule.given else "decision"), rule.id
    for rule_id, entry in rules().items():
        assert entry.basis in BASES, rule_id
        assert entry.sentence.endswith("."), rule_id
        assert entry.do.endswith("."), rule_id
        sentences = re.split(r"(?<=[.;:])\s", f"{entry.sentence} {entry.do}")
        assert max(len(sentence.split()) for sentence in sentences) <= 30, rule_id


@pytest.mark.parametrize("name", ["COMMON-38", "common-38"])
def test_a_rule_says_its_sentence_its_origin_and_what_to_do(chartferry, name):
    code, out, _ = chartferry("rules", name)
    assert code == 0
    assert out.splitlines() == [
        "COMMON-38: A resource has each element that is required.",
        "who says so: decided by this project, where the interface is silent: another target may take such a record",
        f"what to do: {rules()['COMMON-38'].do}",
    ]
    assert "comment_author_id" in rules()["COMMON-38"].do


def test_all_rules_are_listed_with_their_sentences(chartferry):
    code, out, _ = chartferry("rules")
    assert code == 0
    assert len(out.splitlines()) == len(rules())
    assert "PAY-12            interface  A payment has the status `active`." in out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("PAY-CREATE-4", "PAY-CREATE-4: no such rule; did you mean PAY-CREATE-04?"),
        ("?", "?: no such rule; chartferry rules lists them"),
    ],
)
def test_an_unknown_rule_is_reported_in_one_sentence(chartferry, name, said):
    code, out, error = chartferry("rules", name)
    assert (code, out, error) == (4, "", f"chartferry: {said}\n")
