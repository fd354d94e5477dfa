"""`reference load`: reference data at targets of other makes, by given ids or identifiers, written over nothing."""

import json

import pytest

from tests.support.commands import forget_settings
from tests.support.fake_answers import Said

PUTS = ["transaction", "conditional", "identifier", "reference", "puts"]
MRN = "http://example.org/mrn"


@pytest.fixture
def folder(tmp_path):
    """A folder with three patients, a claim of one, a questionnaire, and lines that are not to be loaded."""
    made = tmp_path / "reference"
    made.mkdir()
    patients = [
        {"resourceType": "Patient", "id": f"p{n}", "identifier": [{"system": MRN, "value": f"m|{n}"}]} for n in range(3)
    ]
    named = {"identifier": [{"system": MRN, "value": "c1"}]}
    claim = {"resourceType": "Claim", "id": "c1", "patient": {"reference": "Patient/p1"}, **named}
    slot = {"resourceType": "Slot", "id": "s1"}
    lines(made / "a-claims.ndjson", claim, slot)
    lines(made / "b-patients.ndjson", *patients)
    with (made / "b-patients.ndjson").open("a") as file:
        file.write("\n{broken\n")
    (made / "notes.txt").write_text("no reference data\n")
    return made


def lines(path, *bodies):
    path.write_text("".join(json.dumps(each) + "\n" for each in bodies))


def counts(found):
    return {each.pop("type"): each for each in found["counts"]}


def test_reference_data_is_put_once_under_its_own_ids(folder, home, target, asked):
    """TARGET-06"""
    target.additions, target.promised = False, PUTS
    found = asked("reference", "load", folder)
    assert (found["exit_code"], counts(found)) == (
        3,
        {"unknown": {"refused": 1}, "Patient": {"created": 3}, "Claim": {"created": 1}, "Slot": {"left": 1}},
    )
    assert set(target.stored) == {"p0", "p1", "p2", "c1"}
    [refused] = map(json.loads, (home / "reference.refused.ndjson").read_text().splitlines())
    assert (refused["file"], refused["line"]) == ("b-patients.ndjson", 5)
    target.stored["p1"] |= {"gender": "other"}
    again = asked("reference", "load", folder)
    assert counts(again)["Patient"] == {"there": 3}
    assert target.stored["p1"]["gender"] == "other", "what is in the chart is written over by no file"


@pytest.mark.parametrize("says", [PUTS, [name for name in PUTS if name != "puts"]])
def test_a_resource_that_is_twice_in_a_file_is_put_once_in_its_first_form(tmp_path, target, asked, says):
    """TARGET-06: eight are under way at once, and a second one would find nothing there yet."""
    target.additions, target.promised, target.hold = False, says, 0.1
    identifier = [{"system": MRN, "value": "1"}]
    people = [{"resourceType": "Patient", "id": "p1", "identifier": identifier, "gender": "male"}]
    lines(tmp_path / "patients.ndjson", *people, people[0] | {"gender": "female"}, people[0] | {"gender": "other"})
    found = asked("reference", "load", tmp_path / "patients.ndjson")
    assert counts(found)["Patient"] == {"created": 1, "there": 2}
    assert [each["gender"] for each in target.of("Patient")] == ["male"]


def test_a_server_that_ignores_conditions_gets_nothing_a_second_time(folder, target, asked):
    """TARGET-06: each load made all of them anew, and the claims were those of the new patients."""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    target.does_not = {"conditional"}
    form = {"resourceType": "Questionnaire", "id": "q1", "url": "http://example.org/q|1", "version": "2", "item": []}
    people = [{"resourceType": "Patient", "id": f"t{n}", "identifier": [{"value": f"t,{n % 40}"}]} for n in range(60)]
    lines(folder / "c-others.ndjson", form, *people)
    first = counts(asked("reference", "load", folder))
    assert (first["Patient"], len(target.stored)) == ({"created": 43, "there": 20}, 45)
    again = counts(asked("reference", "load", folder))
    assert (again["Patient"], again["Claim"], again["Questionnaire"]) == ({"there": 63}, {"there": 1}, {"there": 1})
    assert len(target.stored) == 45


def test_a_resource_that_the_target_has_twice_is_refused_and_so_are_those_that_refer_to_it(folder, target, asked):
    """TARGET-06: a server that keeps conditions refuses it, too."""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    for name in ("x1", "x2"):
        known = [{"system": MRN, "value": "m|1"}]
        target.stored[name] = {"resourceType": "Patient", "id": name, "identifier": known}
    found = asked("reference", "load", folder)
    assert (counts(found)["Patient"], len(target.stored)) == ({"created": 2, "refused": 1}, 4)
    said = {each["id"]: each["problems"][0]["text"] for each in found["refused"]}
    assert said["p1"] == "the target has several Patient of this name"
    assert said["c1"] == "it refers to Patient/p1, which was refused"


@pytest.mark.parametrize("how", ["refused", "ignored"])
def test_if_a_search_finds_nothing_or_is_refused_the_conditional_create_decides(folder, target, asked, how):
    """TARGET-06"""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    target.refused_parameters, target.does_not = (
        ({"identifier"}, set()) if how == "refused" else (set(), {"identifier"})
    )
    for outcome in ("created", "there"):
        assert counts(asked("reference", "load", folder))["Patient"] == {outcome: 3}


def test_another_under_a_given_id_is_not_taken_for_the_one_of_the_file(folder, target, asked, chartferry):
    """TARGET-06: nor are the claims of one put to the other."""
    target.additions, target.promised = False, PUTS
    another = {"resourceType": "Patient", "id": "p1", "identifier": [{"system": MRN, "value": "somebody else"}]}
    target.stored["p1"] = another
    target.stored["p2"] = {"resourceType": "Patient", "id": "p2", "identifier": [{"system": "urn:other", "value": "1"}]}
    found = asked("reference", "load", folder)
    assert counts(found) == {
        "unknown": {"refused": 1},
        "Patient": {"created": 1, "there": 1, "refused": 1},
        "Claim": {"refused": 1},
        "Slot": {"left": 1},
    }
    said = {each["id"]: each["problems"][0]["text"] for each in found["refused"]}
    assert said["p1"] == "the target has a different Patient under this id, with another identifier of the same system"
    assert said["c1"] == "it refers to Patient/p1, and the target has a different resource under that id"
    assert (target.stored["p1"], set(target.stored)) == (another, {"p0", "p1", "p2"})
    assert "somebody else" not in "".join(map(str, chartferry("reference", "load", folder)))


def test_where_no_search_is_by_ids_nothing_is_written_over(folder, target, asked):
    """TARGET-06"""
    target.additions, target.promised, target.known_parameters = False, PUTS, set()
    target.stored["p1"] = {"resourceType": "Patient", "id": "p1", "gender": "other"}
    asked("reference", "load", folder)
    assert target.stored["p1"]["gender"] == "other"
    assert set(target.stored) == {"p0", "p1", "p2", "c1"}


def test_references_follow_the_ids_that_the_target_assigns(folder, target, asked):
    """TARGET-06"""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    found = asked("reference", "load", folder)
    assert counts(found)["Patient"] == {"created": 3}
    [claim] = target.of("Claim")
    patient = target.stored[claim["patient"]["reference"].removeprefix("Patient/")]
    assert patient["identifier"][0]["value"] == "m|1"
    assert counts(asked("reference", "load", folder))["Patient"] == {"there": 3}
    assert len(target.stored) == 4


def test_a_resource_without_identifier_is_found_by_its_url_or_by_its_id_as_identifier(folder, target, asked):
    """TARGET-06"""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    practitioner = {"resourceType": "Practitioner", "id": "dr,1"}
    form = {"resourceType": "Questionnaire", "id": "q1", "url": "http://example.org/q|1", "version": "2", "item": []}
    claim = {"resourceType": "Claim", "id": "e1", "provider": {"reference": "Practitioner/dr,1"}}
    lines(folder / "c-others.ndjson", practitioner, form, claim)
    found = asked("reference", "load", folder / "c-others.ndjson")
    assert counts(found) == {
        "Practitioner": {"refused": 1},
        "Questionnaire": {"created": 1},
        "Claim": {"refused": 1},
    }
    assert "--ids-are SYSTEM" in found["refused"][0]["problems"][0]["text"]
    for outcome in ("created", "there"):
        found = counts(asked("reference", "load", folder / "c-others.ndjson", "--ids-are", "http://example.org/chart"))
        assert (found["Practitioner"], found["Claim"]) == ({outcome: 1}, {outcome: 1})
    [doctor], [bill], [kept] = map(target.of, ("Practitioner", "Claim", "Questionnaire"))
    assert doctor["identifier"] == [{"system": "http://example.org/chart", "value": "dr,1"}]
    assert bill["provider"]["reference"] == f"Practitioner/{doctor['id']}"
    assert "identifier" not in kept
    assert set(target.conditions) == {
        "url=http://example.org/q%5C|1&version=2",
        "identifier=http://example.org/chart|dr%5C%2C1",
        "identifier=http://example.org/chart|e1",
    }


def test_an_identifier_without_a_system_finds_none_of_another_system(folder, target, asked):
    """TARGET-06: a claim would be the other patient's."""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    lines(folder / "b-patients.ndjson", {"resourceType": "Patient", "id": "p1", "identifier": [{"value": "77"}]})
    asked("reference", "load", folder / "b-patients.ndjson")
    assert target.conditions == ["identifier=|77"]


def test_ids_that_the_target_changes_are_followed_too(folder, target, asked):
    """TARGET-06: one that takes a PUT under a given id, and has the resource under another."""
    target.additions, target.promised, target.renames = False, PUTS, True
    asked("reference", "load", folder)
    [claim] = target.of("Claim")
    assert claim["patient"]["reference"] == "Patient/ours-p1"


def test_a_resource_that_the_target_refuses_is_named_and_holds_up_no_other(folder, target, asked, chartferry):
    """TARGET-06"""
    target.additions, target.promised = False, PUTS
    target.refuse = lambda body: body["id"] == "p0"
    found = asked("reference", "load", folder / "b-patients.ndjson")
    assert counts(found)["Patient"] == {"created": 2, "refused": 1}
    assert found["refused"][1]["problems"][0]["text"] == "not taken"
    out = chartferry("reference", "load", folder)[1]
    assert "Patient: 2 there, 1 refused" in out


def test_a_target_that_takes_none_says_so_of_each(folder, target, asked):
    """TARGET-06"""
    target.additions, target.promised = False, []
    found = asked("reference", "load", folder)
    assert counts(found)["Patient"] == {"refused": 3}
    said = found["refused"][1]["problems"][0]["text"]
    assert "accepts a Patient neither under a given id nor by a conditional create" in said
    assert (target.puts, target.writes) == (0, 0)


def test_a_lost_answer_is_asked_for_again_and_makes_no_second_one(folder, target, asked):
    """TARGET-06"""
    target.additions, target.promised = False, PUTS
    target.put_faults = ["lost_before", "", ""]
    assert counts(asked("reference", "load", folder))["Patient"]["created"] == 3
    target.put_faults = []
    target.promised = [name for name in PUTS if name != "puts"]
    target.stored.clear()
    target.faults = ["lost_after", "", ""]
    found = counts(asked("reference", "load", folder))
    assert sum(found["Patient"].values()) == 3
    assert len(target.of("Patient")) == 3


@pytest.mark.parametrize("fault", ["lost_after", Said(201, None, done=True)], ids=["lost", "nameless"])
def test_an_unclear_answer_is_looked_for_where_conditions_are_ignored(folder, target, asked, fault):
    """TARGET-06: it made a second patient, and a third one."""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    target.does_not, target.faults = {"conditional"}, [fault] * 3
    found = counts(asked("reference", "load", folder))
    assert sum(found["Patient"].values()) == 3
    assert sorted(each["identifier"][0]["value"] for each in target.of("Patient")) == ["m|0", "m|1", "m|2"]


def test_an_identifier_without_a_value_hides_none_that_has_one(folder, target, asked):
    """TARGET-06: `--ids-are` wrote over all of them."""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    known = [{"system": MRN, "_value": {"extension": []}}, {"system": MRN, "value": "77"}]
    unknown = [{"system": MRN, "use": "old"}]
    people = [{"resourceType": "Patient", "id": f"p{n}", "identifier": each} for n, each in enumerate((known, unknown))]
    lines(folder / "b-patients.ndjson", *people)
    found = counts(asked("reference", "load", folder / "b-patients.ndjson", "--ids-are", "urn:chart"))
    assert found["Patient"] == {"created": 2}
    assert set(target.conditions) == {f"identifier={MRN}|77", "identifier=urn:chart|p1"}
    kept = {len(each["identifier"]): each["identifier"] for each in target.of("Patient")}
    assert kept[2] in (known, [*unknown, {"system": "urn:chart", "value": "p1"}])
    assert [each["identifier"] for each in target.of("Patient") if known == each["identifier"]]


def test_a_resource_that_refers_to_a_refused_one_is_refused_if_the_target_assigns_ids(folder, target, asked):
    """TARGET-06: there the id of the file may be another's."""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    target.refuse = lambda body: "m|1" in json.dumps(body)
    found = asked("reference", "load", folder)
    assert counts(found)["Claim"] == {"refused": 1}
    said = {each["id"]: each["problems"][0]["text"] for each in found["refused"]}
    assert said["c1"] == "it refers to Patient/p1, which was refused"
    assert not target.of("Claim")


def test_a_resource_that_is_too_large_or_always_fails_holds_up_no_other(folder, target, asked, monkeypatch):
    """TARGET-06: a load that ended there ended there each time."""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    target.heaviest_alone = 2_000
    target.fails = lambda body: "m|1" in json.dumps(body)
    large = {"resourceType": "Patient", "id": "large", "identifier": [{"system": MRN, "value": "4"}]}
    lines(folder / "a-large.ndjson", large | {"text": "x" * 3_000})
    found = asked("reference", "load", folder)
    assert (found["exit_code"], counts(found)["Patient"]) == (3, {"created": 2, "refused": 2})
    said = {each["id"]: each["problems"][0]["text"] for each in found["refused"]}
    assert said["large"] == "the resource is too large for the target (HTTP 413)"
    assert said["p1"] == "the target answers this resource with an error of its own (HTTP 500)"


def test_a_target_that_fails_at_all_of_them_is_left_alone(folder, target, chartferry):
    """TARGET-06"""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    target.fails = lambda _: True
    people = [
        {"resourceType": "Patient", "id": f"p{n}", "identifier": [{"system": MRN, "value": str(n)}]} for n in range(500)
    ]
    lines(folder / "b-patients.ndjson", *people)
    code, _, err = chartferry("reference", "load", folder)
    assert (code, err.count("\n")) == (6, 1)
    assert "no clear answer to Patient (HTTP 500)" in err
    assert target.writes < 400


def test_a_target_that_asks_for_fewer_requests_gets_them_later(folder, target, asked):
    """TARGET-06"""
    target.additions, target.promised = False, [name for name in PUTS if name != "puts"]
    target.faults = ["throttled"] * 5
    assert counts(asked("reference", "load", folder))["Patient"] == {"created": 3}


def test_a_compressed_file_that_is_not_whole_is_reported_in_one_line(folder, target, chartferry):
    import gzip

    (folder / "c.ndjson.gz").write_bytes(gzip.compress(b'{"resourceType": "Patient", "id": "p9"}\n' * 100)[:-9])
    code, _, err = chartferry("reference", "load", folder)
    assert (code, err.count("\n")) == (6, 1)
    assert "the compressed file is cut off or damaged" in err


def test_the_bundled_service_loads_its_own(folder, tmp_path, monkeypatch, capsys):
    """TARGET-06"""
    from pipelines.cli import run

    forget_settings(monkeypatch)
    assert run(["--home", str(tmp_path / "new"), "reference", "load", str(folder / "b-patients.ndjson"), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert counts(found)["Patient"]["created"] == 3


def test_a_resource_without_an_id_is_refused_by_name_if_the_target_takes_given_ids(folder, target, asked):
    """TARGET-06: so is one whose id is no text. Other resources are loaded."""
    target.additions, target.promised = False, PUTS
    lines(folder / "b-patients.ndjson", *({"resourceType": "Patient"} | each for each in ({}, {"id": 7}, {"id": "p7"})))
    found = asked("reference", "load", folder / "b-patients.ndjson")
    assert (counts(found)["Patient"], set(target.stored)) == ({"created": 1, "refused": 2}, {"p7"})
    assert {each["problems"][0]["text"] for each in found["refused"]} == {"there is no id"}


def test_a_target_that_does_not_answer_ends_the_load_after_a_few_requests(folder, target, chartferry):
    """TARGET-06: a request for each resource would take hours."""
    target.additions, target.promised = False, PUTS
    lines(folder / "b-patients.ndjson", *({"resourceType": "Patient", "id": f"p{n}"} for n in range(200)))
    target.put_faults = ["lost_before"] * 1_000
    code, _, err = chartferry("reference", "load", folder)
    assert (code, "no clear answer to Patient" in err) == (6, True)
    assert target.puts < 60
    target.put_faults = []
    assert chartferry("reference", "load", folder / "b-patients.ndjson")[0] == 0
    assert len(target.of("Patient")) == 200


def test_an_import_into_another_server_says_that_it_loads_no_reference_data(home, target, chartferry, tmp_path):
    """CLI-CMD-01: else one would believe that the target has it."""
    (tmp_path / "patients.ndjson").write_text('{"resourceType": "Patient", "id": "p9"}\n')
    code, _, err = chartferry("import", "--reference", tmp_path / "patients.ndjson")
    assert (code, "the reference data is not loaded, since the target is not the bundled service" in err) == (0, True)
    assert not (home / "service.duckdb").exists()
    assert target.writes == 0
