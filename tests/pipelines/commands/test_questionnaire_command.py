"""A Questionnaire from an export or a codebook, and what the service refuses of one."""

import json

import pytest

from pipelines.feeds.drafting.questionnaire import draft_questionnaire
from pipelines.home.batch import UnreadableFile

INTERNAL = "http://schemas.demo.example.com/fhir/systems/internal"
GAD = "response_id,mrn,Submitted at," + ",".join(f"GAD{n}" for n in range(1, 8)) + "\n"
BOOK = """Variable / Field Name,Field Type,Field Label,"Choices, Calculations, OR Slider Labels"
smoke,radio,Do you smoke?,"0, Never | 1, Some days | 2, Every day"
how,checkbox,What have you tried?,"a, Gum | b, Patch, or spray"
more,notes,Anything else?,
packs,number,Packs a day,
flag,yesno,Are you well?,
intro,descriptive,Welcome,
"""


def drafted(folder, name, text):
    path = folder / name
    path.write_text(text)
    return draft_questionnaire(path, INTERNAL)


def test_questions_of_a_gad_7_are_known_by_their_names(tmp_path):
    found = drafted(tmp_path, "gad7.csv", GAD + "".join(f"{n},7,2026-03-01,0,1,2,3,0,0,1\n" for n in range(9)))
    assert found.body["code"] == [{"system": "http://loinc.org", "code": "69737-5"}]
    assert [item["code"][0]["code"] for item in found.body["item"]][::6] == ["69725-0", "69736-7"]
    assert found.body["item"][0]["linkId"] == "GAD1"
    assert found.body["item"][0]["answerOption"][3]["valueCoding"]["code"] == "LA6571-9"
    assert 'GAD1: its numbers are options: values = { "0" = "LA6568-5"' in found.notes[3]


def test_columns_that_a_survey_tool_adds_are_no_questions_of_an_instrument(tmp_path):
    """The drafted questionnaire has the code of the GAD-7, as a draft of a feed names it."""
    head = GAD.replace("mrn", "mrn,Progress,Finished,Status,IPAddress,SC0,UserLanguage")
    found = drafted(
        tmp_path, "gad7.csv", head + "".join(f"{n},7,100,1,0,x,{n},en,2026-03-01,0,1,2,3,0,0,1\n" for n in range(9))
    )
    assert found.body["code"] == [{"system": "http://loinc.org", "code": "69737-5"}]
    assert len(found.body["item"]) == 7
    assert "SC0: no question, by its name or its dates; is it one?" in found.notes


def test_a_question_with_a_word_of_a_survey_tool_among_others_stays_one(tmp_path):
    asked = ["Smoking Status", "Marital status", "Number of drinks", "Type of housing", "Employment status"]
    facts = ["Progress", "Finished", "Status", "IPAddress", "UserLanguage"]
    found = drafted(
        tmp_path,
        "intake.csv",
        ",".join([*asked, *facts]) + "\n" + "a,b,1,c,d,100,1,0,x,en\nb,c,2,d,e,50,0,0,y,de\n" * 3,
    )
    assert [item["linkId"] for item in found.body["item"]] == asked
    told = [note.partition(":")[0] for note in found.notes if "no question, by its name" in note]
    assert told == facts


def test_questions_of_a_prapare_are_known_by_their_names_or_words_and_keep_the_options_of_the_export(tmp_path):
    names = (
        "record_id,prapare_7,PRAPARE_worried_housing,prapare_transportation,prapare_date,prapare_22,prapare_stress,"
        "Are you a refugee?,stress,prapare_needs_food,prapare_needs_clothing"
    )
    rows = "".join(f"{n},own,{'yes' if n % 2 else 'no'},no,2026-01-0{n + 1},a,b,no,1,0,1\n" for n in range(8))
    found = drafted(tmp_path, "screening.csv", f"{names}\n{rows}")
    codes = {item["linkId"]: item["code"][0]["code"] for item in found.body["item"]}
    assert {name: code for name, code in codes.items() if code[-2] == "-" and code[0].isdigit()} == {
        "prapare_7": "71802-3",
        "PRAPARE_worried_housing": "93033-9",
        "prapare_transportation": "93030-5",
        "Are you a refugee?": "93027-1",
        "prapare_stress": "93038-8",
    }, "choices of one question in columns of their own are none of them"
    worried = next(item for item in found.body["item"] if item["linkId"] == "PRAPARE_worried_housing")
    assert worried["text"] == "Are you worried about losing your housing?"
    assert [option["valueCoding"]["code"] for option in worried["answerOption"]] == ["no", "yes"]
    assert "PRAPARE_worried_housing: by its name question 93033-9 of a PRAPARE; is it?" in found.notes


@pytest.mark.parametrize("names", ["PHQ9,total", "phq_1,other", "PHQ1,PHQ 1"])
def test_a_single_column_that_may_hold_a_total_score_is_no_question_of_an_instrument(names, tmp_path):
    """PHQ9 may be the ninth question, or the sum of nine."""
    found = drafted(tmp_path, "s.csv", f"{names},why\n" + "".join(f"{n % 3},{n % 3},x {n} y\n" for n in range(12)))
    assert all(item["code"][0]["system"] == INTERNAL for item in found.body["item"])
    assert any("made up" in note for note in found.notes)


def test_few_repeated_answers_become_options_and_a_note_asks_about_each_guess(tmp_path):
    rows = "".join(f"{n},{'yes' if n % 2 else 'no'},words {n},{n}.5,x\n" for n in range(8))
    found = drafted(tmp_path, "visit form.csv", "record_id,smokes,comment,weight,44250-9 interest\n" + rows)
    kinds = {item["linkId"]: item["type"] for item in found.body["item"]}
    assert kinds == {"smokes": "choice", "comment": "text", "weight": "decimal", "44250-9 interest": "text"}
    assert found.body["item"][3]["code"] == [{"system": "http://loinc.org", "code": "44250-9"}]
    assert found.body["name"] == "VisitForm"
    assert found.notes[:3] == [
        "record_id: no question, by its name or its dates; is it one?",
        "smokes: drafted as a choice of no, yes; are these all options, or is it a free text?",
        "comment: drafted as a free text; should it be a choice?",
    ]


def test_a_codebook_gives_words_types_and_options(tmp_path):
    found = drafted(tmp_path, "intake.csv", BOOK)
    items = {item["linkId"]: item for item in found.body["item"]}
    assert {name: (item["type"], item.get("repeats")) for name, item in items.items()} == {
        "smoke": ("choice", False),
        "how": ("choice", True),
        "more": ("text", None),
        "packs": ("decimal", None),
        "flag": ("choice", False),
    }
    assert [option["valueCoding"]["display"] for option in items["how"]["answerOption"]] == ["Gum", "Patch, or spray"]
    assert items["smoke"]["text"] == "Do you smoke?"


def test_a_file_without_questions_is_reported_in_one_sentence(tmp_path):
    with pytest.raises(UnreadableFile, match=r"^x\.csv: no column of it looks like a question$"):
        drafted(tmp_path, "x.csv", "patient_id,date\np1,2026-03-01\np2,2026-03-01\n")
    with pytest.raises(UnreadableFile, match="a table with a header is expected"):
        drafted(tmp_path, "x.ndjson", '{"a": 1}\n')


def test_the_service_accepts_a_drafted_questionnaire_and_names_each_fault_in_a_broken_one(tmp_path, chartferry):
    """questionnaire new, check: the words of refusal are those of the service that would load it."""
    export = tmp_path / "gad7.csv"
    export.write_text(GAD + "".join(f"{n},7,2026-03-01,0,1,2,3,0,0,1\n" for n in range(9)))
    code, out, said = chartferry("questionnaire", "new", export)
    assert code == 0
    assert said.startswith("DECIDE: response_id: no question")
    draft, loaded = tmp_path / "gad7.json", tmp_path / "gad7.ndjson"
    draft.write_text(out)
    assert chartferry("questionnaire", "check", draft, "--out", loaded)[:2] == (
        0,
        f"the service takes it\n{loaded}: load it by fhir-service load, or put it into the reference folder\n",
    )
    assert json.loads(loaded.read_text()) == json.loads(out)
    broken = json.loads(out)
    broken["item"][1]["linkId"] = "GAD1"
    broken["item"][2]["type"] = "date"
    draft.write_text(json.dumps(broken))
    code, out, _ = chartferry("questionnaire", "check", draft, "--out", tmp_path / "none.ndjson")
    assert code == 4
    assert "gad7: Questionnaire.item[1].linkId: the linkId occurs more than once" in out.splitlines()
    assert "gad7: Questionnaire.item[2].type: the type of item is not supported" in out.splitlines()
    assert not (tmp_path / "none.ndjson").exists()


def test_two_options_with_one_code_are_a_warning_because_the_service_accepts_them(tmp_path, chartferry):
    draft = draft_questionnaire(_written(tmp_path / "q.csv"), INTERNAL).body
    draft["item"][0]["answerOption"][1] = draft["item"][0]["answerOption"][0]
    (tmp_path / "q.json").write_text(json.dumps(draft))
    code, out, _ = chartferry("questionnaire", "check", tmp_path / "q.json")
    assert (code, out.splitlines()[0]) == (
        0,
        f"warning: Questionnaire/q: 2 options of question a have the code {INTERNAL}|no",
    )


def _written(path):
    path.write_text("a,b\n" + "".join(f"{'yes' if n % 2 else 'no'},w {n}\n" for n in range(8)))
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{]", "chartferry: q.json: line 1 is not JSON\n"),
        (
            r'{"resourceType": "Questionnaire", "name": "cut \ud83d"}',
            "chartferry: q.json: an escape such as \\ud83d is half of a character\n",
        ),
        ('{"resourceType": "Patient"}', "chartferry: q.json: the file must hold Questionnaires only\n"),
    ],
)
def test_a_file_without_a_questionnaire_is_reported_in_one_line(text, said, tmp_path, chartferry):
    (tmp_path / "q.json").write_text(text)
    assert chartferry("questionnaire", "check", tmp_path / "q.json") == (4, "", said)
