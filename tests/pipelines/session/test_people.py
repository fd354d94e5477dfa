"""People whom a feed names by an identifier of its source: looked up at the target, many at once, each only once."""

import json
from contextlib import closing
from urllib.parse import unquote

import pytest

from pipelines.client.client import FhirClient
from pipelines.client.replies import NotSent, Reply, RequestRefused, UnknownOutcome
from pipelines.client.tokens import Credentials
from pipelines.feeds.files.catalog import FeedError, load_feed
from pipelines.ledger.ledger import Ledger
from tests.support.exports import put

FEED = """
name = "till"
kind = "payments"
files = ["till*.csv"]
[columns]
payment_id = "id"
patient_id = { column = "card", crosswalk = { reference = "identifier", type = "Patient", system = "urn:cards" } }
amount = "sum"
paid_on = "on"
"""
HEADER = "id,card,sum,on\n"


@pytest.fixture
def other(home, target):
    """A target of another make that knows three people, and a feed that names people by their cards."""
    target.additions, target.promised = False, ["transaction", "conditional", "identifier", "reference"]
    people(target, "11", "A 1|2")
    people(target, "12", "b,$")
    people(target, "13", "A 1|2", system="urn:others")
    (home / "feeds").mkdir(exist_ok=True)
    (home / "feeds" / "till.toml").write_text(FEED)
    return target


def people(target, name, card, system="urn:cards"):
    target.stored[name] = {"resourceType": "Patient", "id": name, "identifier": [{"system": system, "value": card}]}


def rows(*cards):
    return HEADER + "".join(f'k{at},"{card}",1.0{at},2026-03-01\n' for at, card in enumerate(cards))


def paid(target):
    made = target.of("PaymentNotice")
    return {body["identifier"][0]["value"]: body["request"]["reference"] for body in made}


def searches(target):
    return [each for each in target.searches if each["type"] == ["Patient"]]


def test_people_are_found_by_their_identifiers_in_one_search(home, other, asked):
    """TARGET-07: whatever signs are in a value, and who has it under another system is somebody else."""
    put(home, "till.csv", rows("A 1|2", "b,$", " A  1|2 "))
    assert asked("import")["totals"]["created"] == 3
    assert paid(other) == {"k0": "Patient/11", "k1": "Patient/12", "k2": "Patient/11"}
    assert len(searches(other)) == 1
    put(home, "till-2.csv", rows("b,$").replace("k0", "k7"))
    asked("import")
    assert paid(other)["k7"] == "Patient/12"


def test_the_files_of_one_import_search_each_person_once(home, other, asked):
    """TARGET-07"""
    put(home, "till-1.csv", rows("A 1|2"))
    put(home, "till-2.csv", rows("A 1|2", "b,$").replace("k", "m"))
    assert asked("import")["totals"]["created"] == 3
    assert [each["identifier"] for each in searches(other)] == [["urn:cards|A 1\\|2"], ["urn:cards|b\\,\\$"]]


def test_a_person_who_is_not_found_or_found_twice_makes_a_reject_that_can_be_retried(home, other, asked):
    """TARGET-07: with its line and one sentence; the row is not sent."""
    people(other, "14", "b,$")
    put(home, "till.csv", rows("A 1|2", "C", "b,$"))
    found = asked("import")
    assert (found["totals"]["created"], found["totals"]["rejected"]) == (1, 2)
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        lines = [each["line"] for each in ledger.tables()["reject"].to_pylist()]
        reasons = ledger.tables()["reject_reason"].to_pylist()
    assert lines == [3, 4]
    assert [(each["rule_id"], each["message"]) for each in reasons] == [
        ("TARGET-07", "the target has no Patient with this identifier (system urn:cards)"),
        ("TARGET-07", "the target has more than one Patient with this identifier (system urn:cards)"),
    ]
    people(other, "15", "C")
    del other.stored["14"]
    assert asked("rejects", "retry")["totals"]["created"] == 2
    assert paid(other) == {"k0": "Patient/11", "k1": "Patient/15", "k2": "Patient/12"}


def test_nothing_is_asked_for_rows_that_the_feed_does_not_take(home, other, asked):
    """TARGET-07"""
    (home / "feeds" / "till.toml").write_text(FEED.replace("[columns]", '[take]\nkind = "P"\n[columns]'))
    put(home, "till.csv", "id,card,sum,on,kind\nk1,A 1|2,1.00,2026-03-01,P\nk2,C,1.00,2026-03-01,X\n")
    assert asked("import")["totals"]["created"] == 1
    assert [each["identifier"] for each in searches(other)] == [["urn:cards|A 1\\|2"]]


def test_a_target_that_cannot_search_people_ends_the_import_before_anything_is_sent(home, other, asked, monkeypatch):
    """TARGET-07: it refuses the search, or returns everybody."""
    put(home, "till.csv", rows("A 1|2", "C"))
    other.refused_parameters = {"identifier"}
    found = asked("import")
    assert (found["exit_code"], other.writes) == (6, 0)
    assert "Patient could not be searched by identifier (HTTP 400)" in json.dumps(found)
    other.refused_parameters = set()
    whole = other.found
    with monkeypatch.context() as patched:
        patched.setattr(other, "found", lambda kind, query: whole(kind, {}))
        found = asked("import")
    assert (found["exit_code"], other.writes) == (6, 0)
    assert "the target does not search a Patient by identifier: it gave others" in json.dumps(found)
    assert asked("import")["totals"]["created"] == 1


def reasons(home):
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        return [
            each["message"] for each in ledger.tables()["reject_reason"].to_pylist() if each["rule_id"] == "TARGET-07"
        ]


def test_values_that_cannot_be_identifiers_are_not_searched_for(home, other, asked):
    """TARGET-07: they are too long, or hold several lines or cells; only their rows are rejects."""
    put(home, "till.csv", rows("A 1|2", "9" * 70_000, "x\nk9,b"))
    found = asked("import")
    assert (found["totals"]["created"], found["totals"]["rejected"]) == (1, 2)
    assert [each["identifier"] for each in searches(other)] == [["urn:cards|A 1\\|2"]]
    assert {why.partition(":")[0] for why in reasons(home)} == {"not asked of the target"}


def test_a_value_that_may_be_misread_is_not_searched_for(home, other, asked):
    """TARGET-07"""
    put(home, "till.csv", HEADER + 'k1,A 1|2,1.00,2026-03-01\nk2,"C" x,1.00,2026-03-01\n')
    asked("import")
    assert [each["identifier"] for each in searches(other)] == [["urn:cards|A 1\\|2"]]


@pytest.mark.parametrize(
    "answer", [RequestRefused(Reply(400)), UnknownOutcome("HTTP 400"), UnknownOutcome("HTTP 414")], ids=repr
)
def test_a_value_that_the_target_refuses_is_a_fault_of_its_row(home, other, asked, monkeypatch, answer):
    """TARGET-07"""
    whole = FhirClient.get

    def get(client, path):
        if "<" in unquote(path):
            raise answer
        return whole(client, path)

    monkeypatch.setattr(FhirClient, "get", get)
    put(home, "till.csv", rows("A 1|2", "<b>"))
    found = asked("import")
    assert (found["totals"]["created"], found["totals"]["rejected"]) == (1, 1)
    assert reasons(home) == ["the target refuses to search for this identifier: look at the value"]


@pytest.mark.alike
@pytest.mark.parametrize(
    ("fields", "former", "why"),
    [
        ({}, {"use": "old"}, "the target has no Patient"),
        ({}, {"period": {"end": "2001"}}, "the target has no Patient"),
        ({"active": False}, {}, "the record with this identifier was merged"),
        ({"link": [{"type": "replaced-by", "other": {"reference": "Patient/11"}}]}, {}, "the record with this"),
    ],
)
def test_a_former_holder_of_an_identifier_and_a_merged_person_are_not_taken(home, other, asked, fields, former, why):
    """TARGET-07: unless a present holder is found as well."""
    other.stored["12"] |= fields
    other.stored["12"]["identifier"][0] |= former
    put(home, "till.csv", rows("A 1|2", "b,$"))
    assert asked("import")["totals"]["created"] == 1
    assert reasons(home)[0].startswith(why)
    people(other, "14", "b,$")
    other.stored["14"]["identifier"][0]["period"] = {"end": "9999-12-31"}
    assert asked("rejects", "retry")["totals"]["created"] == 1
    assert paid(other)["k1"] == "Patient/14"


def test_a_url_that_is_too_long_counts_as_not_sent():
    client = FhirClient("http://127.0.0.1:9", Credentials(token="x"))
    with closing(client), pytest.raises(NotSent) as error:
        client.get("/Patient?identifier=" + "9" * 70_000)
    assert error.value.final


def test_a_target_without_such_a_search_fails_the_file_with_one_sentence(home, other, asked):
    """TARGET-07"""
    other.promised = ["transaction", "conditional"]
    put(home, "till.csv", rows("A 1|2"))
    found = asked("import")
    assert "till.csv: till.toml: the target does not say that a Patient can be searched by identifier" in str(found)
    assert other.writes == 0


def test_a_feed_is_tried_without_a_target_by_a_stand_in(home, other, chartferry):
    """TARGET-07"""
    put(home, "till.csv", rows("A 1|2"))
    feed, sample = home / "feeds" / "till.toml", home / "inbox" / "till.csv"
    code, out, _ = chartferry("feeds", "check", feed, "--sample", sample)
    assert code == 0
    assert "patient_id  from card, by identifier of urn:cards at the target" in out
    assert "patient_id  Patient/by-identifier" in out


@pytest.mark.parametrize(
    ("walk", "why"),
    [
        (
            '{ reference = "identifier", type = "Patient" }',
            'reference = "identifier" needs type and system, and no other key',
        ),
        ('{ reference = "name", type = "Patient", system = "x" }', "must be 'identifier'"),
        (
            '{ file = "x.csv", from = "a", to = "b", system = "x" }',
            'type and system are only allowed with reference = "identifier"',
        ),
        ('{ reference = "identifier", type = "Group", system = "x" }', "must be 'Patient' or 'Practitioner'"),
    ],
)
def test_a_mistake_in_a_crosswalk_at_the_target_is_reported_in_one_sentence(tmp_path, walk, why):
    start = FEED.index("{ reference")
    (tmp_path / "till.toml").write_text(FEED[:start] + walk + FEED[FEED.index(" }\namount") :])
    with pytest.raises(FeedError) as error:
        load_feed(tmp_path / "till.toml")
    assert why in str(error.value)
