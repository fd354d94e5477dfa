"""Targets that keep identifiers otherwise than they are sent, or do not find all of them: no row is there twice."""

import json
from urllib.parse import unquote

import pytest

from tests.support.fake_target import SEPARATOR, FakeTarget, serving
from tests.support.work import Work, payment, response, task

WAYS = {
    "transaction": ["transaction", "conditional", "identifier"],
    "conditional": ["conditional", "identifier"],
    "look-up": ["identifier"],
}
MAKE = {"tasks": task, "answers": response, "payments": payment}


def named(body):
    shown = body.get("identifier", [])
    return shown if isinstance(shown, list) else [shown]


class InLowerCase(FakeTarget):
    """Keeps identifiers in lower case, and finds no others."""

    def create(self, body, condition=None):
        body = json.loads(json.dumps(body))
        for each in named(body):
            each["value"] = each["value"].lower()
        return super().create(body)


def in_any_case(bodies, query):
    """Return the matches of a search that ignores case."""
    asked = {each.lower() for each in SEPARATOR.split(query["identifier"][0])}
    return [body for body in bodies if any(f"{n['system']}|{n['value']}".lower() in asked for n in named(body))]


class InAnyCase(InLowerCase):
    """Keeps identifiers in lower case, and finds them in any."""

    def found(self, kind, query):
        return in_any_case(self.of(kind), query) if "identifier" in query else super().found(kind, query)


class WithoutEscapes(FakeTarget):
    """Takes each comma for the end of a value, and each bar for that of a system, whatever is before it."""

    def create(self, body, condition=None):
        asked = unquote((condition or "").removeprefix("identifier="))
        return super().create(body, None if "\\" in asked else condition)

    def found(self, kind, query):
        if "identifier" not in query:
            return super().found(kind, query)
        asked = {each.rpartition("|")[2] for each in query["identifier"][0].split(",")}
        return [body for body in self.of(kind) if any(each["value"] in asked for each in named(body))]


def at(tmp_path, target, resource):
    work = Work(tmp_path, target)
    work.follow(resource)
    return work


@pytest.mark.alike
@pytest.mark.parametrize("says", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("resource", list(MAKE))
@pytest.mark.parametrize("key", ["P,9", "P|9"])
def test_a_key_that_an_unescaped_search_misses_is_looked_up_by_its_content(tmp_path, says, resource, key):
    """TARGET-03, LEDGER-01: the search finds the other keys that are known to be there, and so seems to work."""
    with serving(WithoutEscapes(says=says)) as target:
        work = at(tmp_path, target, resource)
        rows = [*(MAKE[resource](number, key=f"K{number}") for number in range(4)), MAKE[resource](9, key=key)]
        target.faults, target.faulty = ["lost_after"], lambda body: key in json.dumps(body)
        work.run(rows)
        work.run(rows, settling=0)
        assert len(target.stored) == 5
        assert set(work.states().values()) <= {"created", "adopted"}
        work.close()


@pytest.mark.alike
@pytest.mark.parametrize("kind", [InLowerCase, InAnyCase])
@pytest.mark.parametrize("says", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("resource", list(MAKE))
def test_a_lost_row_whose_identifier_is_kept_in_other_letters_waits_for_a_person(tmp_path, kind, says, resource):
    """TARGET-03, LEDGER-01"""
    with serving(kind(says=says)) as target:
        work = at(tmp_path, target, resource)
        rows = [MAKE[resource](number, key=f"KEY-{number}") for number in range(3)]
        work.run(rows[:2])
        target.faults = ["lost_after"]
        work.run(rows)
        work.run(rows, settling=0)
        assert len(target.stored) == 3
        assert work.states()["KEY-2"] == "in_doubt"
        work.close()


def test_keys_that_differ_in_letters_alone_are_two_rows(tmp_path):
    """LEDGER-01: a search in any case shows the one for the other."""

    class Either(FakeTarget):
        def found(self, kind, query):
            return in_any_case(self.of(kind), query) if "identifier" in query else super().found(kind, query)

    with serving(Either(says=WAYS["look-up"])) as target:
        work = at(tmp_path, target, "tasks")
        assert work.run([task(1, key="a1")]).counts == {"created": 1}
        assert work.run([task(1, key="a1"), task(2, key="A1")], "tasks-2").counts == {"created": 1, "unchanged": 1}
        work.close()
