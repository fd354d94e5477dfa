"""Scores: those that come with the project, a practice's own, and what questionnaires declare by themselves."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.reports.publication import PublicationError
from pipelines.reports.scores import score_files
from pipelines.validation.scoring import COUNTED, KNOWN
from tests.support.publishing import START, World, carry_over, publish_only

LOINC = "http://loinc.org"
ORDINAL = "http://hl7.org/fhir/StructureDefinition/ordinalValue"
FREQUENCY = ("LA6568-5", "LA6569-3", "LA6570-1", "LA6571-9")
Response = tuple[datetime | None, dict[str, Any]]


def option(code: str, value: float | None = None) -> dict[str, Any]:
    extension = [] if value is None else [{"url": ORDINAL, "valueDecimal": value}]
    return {"valueCoding": {"system": LOINC, "code": code, "display": code, "extension": extension}}


def question(link: str, options: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"linkId": link, "type": "choice", "code": [{"system": LOINC, "code": link}], "answerOption": options} | more


def questionnaire(of: str, *items: dict[str, Any], code: str = "local", name: str = "Form") -> dict[str, Any]:
    about = {"resourceType": "Questionnaire", "id": of, "name": name, "status": "active"}
    return about | {"code": [{"system": LOINC, "code": code}], "item": list(items)}


def panel(name: str, *codes: str) -> dict[str, Any]:
    """The questionnaire of a known panel, its name for an id, each question with the options named."""
    [(whole, _)] = [each for each in KNOWN.items() if each[1] == name]
    links = sorted(each.partition("|")[2] for each in COUNTED[whole])
    return questionnaire(
        name, *(question(link, list(map(option, codes))) for link in links), code=whole.partition("|")[2]
    )


def response(answers: dict[str, str | float], of: str = "q1", day: int = 0) -> Response:
    items = [
        {
            "linkId": link,
            "answer": [
                {"valueCoding": {"system": LOINC, "code": given}} if isinstance(given, str) else {"valueDecimal": given}
            ],
        }
        for link, given in answers.items()
    ]
    return START + timedelta(days=day), {"questionnaire": f"http://chart/Questionnaire/{of}", "item": items}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    publish_only(monkeypatch, "score", "score_by_patient")
    made = World(tmp_path)
    yield made
    made.ledger.close()


def scores(world: World, *responses: Response) -> list[tuple[Any, ...]]:
    carry_over(world, "QuestionnaireResponse", {f"r{n}": each for n, each in enumerate(responses, 1)})
    world.publish()
    order = "ORDER BY length(response_id), response_id"
    return world.rows(f"SELECT score_name, value, complete, missing, band FROM score {order}")


PANELS = (
    ("PHQ-9", [3, 3, 3, 3, 3, 3, 3, 3, 3], 27.0, "severe"),
    ("PHQ-9", [0, 0, 0, 0, 0, 0, 0, 0, 0], 0.0, "minimal"),
    ("PHQ-9", [1, 2, 1, 0, 2, 1, 0, 2, 1], 10.0, "moderate"),
    ("PHQ-9", [1, 2, 1, 0, 2, 1, 0, 2, 0], 9.0, "mild"),
    ("PHQ-2", [1, 1], 2.0, "negative"),
    ("PHQ-2", [1, 2], 3.0, "positive"),
    ("GAD-7", [3, 2, 2, 2, 2, 2, 2], 15.0, "severe"),
    ("GAD-7", [2, 2, 2, 2, 2, 2, 2], 14.0, "moderate"),
)


def test_the_known_panels_are_added_up(world: World) -> None:
    forms = {name: panel(name, *FREQUENCY) for name, *_ in PANELS}
    world.questionnaires = list(forms.values())
    given = []
    for name, chosen, *_ in PANELS:
        links = [item["linkId"] for item in forms[name]["item"]]
        given.append(response({link: FREQUENCY[at] for link, at in zip(links, chosen, strict=True)}, of=name))
    assert scores(world, *given) == [(name, value, True, 0, band) for name, _, value, band in PANELS]


DRINKS: tuple[tuple[dict[str, str | float], tuple[Any, ...]], ...] = (
    ({"68518-0": "LA18929-2", "68519-8": "LA18932-6", "68520-6": "LA18934-2"}, (12.0, True, 0, "positive")),
    ({"68518-0": "LA18927-6", "68519-8": "LA15694-5", "68520-6": "LA18933-4"}, (3.0, True, 0, "positive for women")),
    ({"68518-0": "LA6270-8"}, (0.0, True, 0, "negative")),
    ({"68518-0": "LA18926-8"}, (1.0, False, 2, None)),
    ({}, (None, False, 3, None)),
)


@pytest.mark.long
def test_audit_c_is_complete_for_a_patient_who_never_drinks(world: World) -> None:
    codes = ("LA6270-8", "LA18926-8", "LA18927-6", "LA18929-2", "LA15694-5", "LA18932-6", "LA18933-4", "LA18934-2")
    world.questionnaires = [panel("AUDIT-C", *codes)]
    given = [response(answers, of="AUDIT-C") for answers, _ in DRINKS]
    assert scores(world, *given) == [("AUDIT-C", *expected) for _, expected in DRINKS]


def test_our_scores_count_the_questions_that_validation_misses(tmp_path: Path) -> None:
    ours = {each.questionnaires[0]: set(each.questions) for each in score_files(tmp_path)}
    assert ours == COUNTED
    assert {each.questionnaires[0]: each.name for each in score_files(tmp_path)} == KNOWN


def test_an_incomplete_score_has_no_band_and_is_in_no_course_of_a_patient(world: World) -> None:
    """So is one with an option that the score does not know."""
    world.questionnaires = [panel("PHQ-2", *FREQUENCY, "LA-refused")]
    both: dict[str, str | float] = {"44250-9": "LA6571-9", "44255-8": "LA6570-1"}
    found = scores(
        world,
        response(both, of="PHQ-2", day=0),
        response({"44250-9": "LA6571-9"}, of="PHQ-2", day=3),
        response(both | {"44255-8": "LA6568-5"}, of="PHQ-2", day=10),
        response(both | {"44250-9": "LA-refused"}, of="PHQ-2", day=12),
    )
    assert found == [
        ("PHQ-2", 5.0, True, 0, "positive"),
        ("PHQ-2", 3.0, False, 1, None),
        ("PHQ-2", 3.0, True, 0, "positive"),
        ("PHQ-2", 2.0, False, 1, None),
    ]
    course = "SELECT number, response_id, value, previous_value, change, days_since_previous FROM score_by_patient"
    assert world.rows(course) == [(1, "id-r1", 5.0, None, None, None), (2, "id-r3", 3.0, 5.0, -2.0, 10)]


@pytest.mark.long
def test_a_conditional_question_is_left_out_only_without_an_answer(world: World) -> None:
    """An answer to it that does not count is missing: without it the sum was called complete."""
    asked = {"enableWhen": [{"question": "a", "operator": "exists", "answerBoolean": True}]}
    items = [question("a", [option("x", 1), option("y", 2)]), question("b", [option("x", 1), option("odd")], **asked)]
    world.questionnaires = [questionnaire("q1", *items)]
    assert scores(world, response({"a": "y", "b": "x"}), response({"a": "y"}), response({"a": "y", "b": "odd"})) == [
        ("Form", 3.0, True, 0, None),
        ("Form", 2.0, True, 0, None),
        ("Form", 2.0, False, 1, None),
    ]


@pytest.mark.long
def test_a_repeated_option_counts_once(world: World) -> None:
    """One that declares two values counts for none."""
    options = [option("x", 1), option("y", 2), option("x", 1), option("z", 3), option("z", 4), option("z", 3)]
    world.questionnaires = [questionnaire("q1", question("a", options))]
    assert scores(world, response({"a": "x"}), response({"a": "y"}), response({"a": "z"})) == [
        ("Form", 1.0, True, 0, None),
        ("Form", 2.0, True, 0, None),
        ("Form", None, False, 1, None),
    ]


OWN = """
name = "Well-being by {method}"
questionnaires = ["Form {method}"]
method = "{method}"
questions = ["a", "b", "pain"]
reversed = ["b"]
missing_allowed = 1
[values]
no = 1
some = 2
"http://loinc.org|much" = 4
[question_values.b]
no = 0
[[bands]]
from = 5
label = "well"
"""


def own_score(world: World, text: str, name: str = "own.toml") -> None:
    (world.home / "scores").mkdir(exist_ok=True)
    (world.home / "scores" / name).write_text(text)


ADDED: dict[str, tuple[tuple[dict[str, str | float], tuple[Any, ...]], ...]] = {
    "sum": (
        ({"a": "much", "b": "no", "pain": 1.5}, (9.5, True, 0, "well")),
        ({"a": "much", "pain": 2.0}, (9.0, True, 1, "well")),
        ({"a": "some", "b": "much", "pain": 0.0}, (2.0, True, 0, None)),
    ),
    "mean": (
        ({"a": "much", "b": "no", "pain": 1.0}, (3.0, True, 0, None)),
        ({"b": "some", "pain": 1.0}, (1.5, True, 1, None)),
        ({"b": "some"}, (2.0, False, 2, None)),
    ),
}


def test_a_practices_own_score_has_reversed_questions_gaps_and_bands(world: World) -> None:
    choices = [option("no"), option("some"), option("much")]
    items = question("a", choices), question("b", choices), {"linkId": "pain", "type": "decimal"}
    world.questionnaires = [questionnaire(method, *items, name=f"Form {method}") for method in ADDED]
    for method in ADDED:
        own_score(world, OWN.format(method=method), f"{method}.toml")
    given = [response(answers, of=method) for method, added in ADDED.items() for answers, _ in added]
    assert scores(world, *given) == [
        (f"Well-being by {method}", *expected) for method, added in ADDED.items() for _, expected in added
    ]


def test_values_declared_by_a_questionnaire_are_added_up_and_win_over_a_score_file(world: World) -> None:
    form = questionnaire(
        "q1",
        question("a", [option("no", 0), option("yes", 2.5)]),
        question("b", [option("no", 1), option("yes", 3)], enableWhen=[{"question": "a"}]),
        question("c", [option("no")]),
    )
    world.questionnaires = [form]
    found = scores(world, response({"a": "yes", "b": "yes", "c": "no"}), response({"a": "no"}), response({"b": "no"}))
    assert found == [("Form", 5.5, True, 0, None), ("Form", 0.0, True, 0, None), ("Form", 1.0, False, 1, None)]
    own_score(world, 'name = "Own"\nquestionnaires = ["q1"]\nquestions = ["a"]\n[values]\nyes = 9\n')
    world.publish()
    assert world.rows("SELECT score_name, value FROM score WHERE response_id = 'id-r1'") == [("Own", 2.5)]


@pytest.mark.long
def test_a_score_of_the_home_takes_the_place_of_ours(world: World) -> None:
    world.questionnaires = [panel("PHQ-2", *FREQUENCY)]
    values = "".join(f'"{code}" = {value}\n' for value, code in enumerate(FREQUENCY, 1))
    questions = '["44250-9", "44255-8"]'
    own_score(world, f'name = "PHQ-2"\nquestionnaires = ["55757-9"]\nquestions = {questions}\n[values]\n{values}')
    given = response({"44250-9": "LA6568-5", "44255-8": "LA6568-5"}, of="PHQ-2")
    assert scores(world, given) == [("PHQ-2", 2.0, True, 0, None)]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world with a published form, for tests that leave it as it is."""
    made = World(tmp_path_factory.mktemp("published"))
    others = {"linkId": "story", "type": "text"}, {"linkId": "weight", "type": "decimal"}
    items = question("a", [option("no"), option("yes")]), *others
    made.questionnaires = [questionnaire("q1", *items)]
    with pytest.MonkeyPatch.context() as patch:
        publish_only(patch, "score")
        made.publish()
    yield made
    made.ledger.close()


VALID = 'name = "Own"\nquestionnaires = ["q1"]\nquestions = ["a"]\n'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name", "scores/own.toml: the file is not valid TOML: "),
        ('questions = ["a"]', "scores/own.toml: `name` is missing"),
        (VALID.replace("questions", "question"), "scores/own.toml: there is no setting `question`; possible: name, "),
        (VALID + "formula = 1", "scores/own.toml: there is no setting `formula`; possible: name, questionnaires, "),
        (VALID + 'method = "product"', "scores/own.toml: `method` is sum or mean"),
        (VALID + "missing_allowed = -1", "scores/own.toml: `missing_allowed` is a number of questions, from 0"),
        (VALID + '[values]\nno = "1"', "scores/own.toml: `values` is a table: option = number"),
        (VALID + "[[bands]]\nfrom = 1", "scores/own.toml: `bands` is a list of tables with from and label"),
        (
            VALID + "[values]\nno = 1",
            "scores/own.toml: the question a of the questionnaire q1 has the option yes, and [values] has no value",
        ),
        (
            VALID.replace('"a"', '"story"'),
            "scores/own.toml: the question story of the questionnaire q1 is answered in words: leave it out",
        ),
        (
            VALID.replace('"a"', '"a", "loinc|a"').replace("loinc", LOINC) + "[values]\nno = 0\nyes = 1",
            "scores/own.toml: `questions` names the question a of q1 twice",
        ),
        (
            VALID.replace('"a"', '"weight"') + 'reversed = ["weight"]',
            "scores/own.toml: the question weight of the questionnaire q1 is in `reversed`, and without options",
        ),
    ],
)
def test_an_unusable_score_ends_the_publication_with_one_sentence_and_the_last_one_stays(
    published: World, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    publish_only(monkeypatch, "score")
    before = (published.home / "published" / "reports.duckdb").read_bytes()
    own_score(published, text)
    with pytest.raises(PublicationError) as caught:
        published.publish()
    assert str(caught.value).startswith(f"not published: {why}")
    assert "\n" not in str(caught.value)
    assert (published.home / "published" / "reports.duckdb").read_bytes() == before


def test_a_score_of_an_unknown_questionnaire_gives_a_remark_also_on_the_table(world: World) -> None:
    world.questionnaires = [questionnaire("q1", question("a", [option("no")]), name="PainDiary")]
    own_score(world, VALID.replace("q1", "PainDairy"))
    done = world.publish()
    said = (
        "scores/own.toml: the score Own is of the questionnaire PainDairy, and the target has none with that id, "
        "name or code: it has PainDiary."
    )
    assert done.remarks == [f"score: {said}"]
    [(comment,)] = world.rows("SELECT comment FROM duckdb_tables() WHERE table_name = 'score'")
    assert comment.endswith(said)


VALUES = "\n[values]\nno = 0\nyes = 1"
OTHER = "names the question b, and q1 has none of that linkId or code: it has a, story."


UNKNOWN: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    (VALID.replace('"a"', '"a", "b"') + VALUES, f"`questions` of the score Own {OTHER}", (1, False, 1)),
    (
        VALID.replace('"a"', '"a", "b"') + "missing_allowed = 1" + VALUES,
        f"`questions` of the score Own {OTHER}",
        (2, True, 1),
    ),
    (VALID + 'reversed = ["b"]' + VALUES, f"`reversed` of the score Own {OTHER}", (1, True, 0)),
    (
        VALID + 'reversed = ["story"]' + VALUES,
        "`reversed` of the score Own names the question story, which is none of its `questions`: a.",
        (1, True, 0),
    ),
    (
        VALID + VALUES + '\n[rest_is_zero_after]\na = ["never"]',
        "`rest_is_zero_after` of the score Own names the option never of a, which has no, yes.",
        (1, True, 0),
    ),
)
"""Scores that name what no questionnaire has: the rule, what is said of it, and what it makes of an answer."""


def test_a_score_with_an_unknown_question_is_computed_without_it_and_gives_a_remark(world: World) -> None:
    items = question("a", [option("no"), option("yes")]), {"linkId": "story", "type": "text"}
    world.questionnaires = [questionnaire("q1", *items)]
    for n, (text, *_) in enumerate(UNKNOWN):
        own_score(world, text.replace("Own", f"Own{n}"), f"own{n}.toml")
    carry_over(world, "QuestionnaireResponse", {"r1": response({"a": "yes"})})
    assert world.publish().remarks == [
        f"score: scores/own{n}.toml: {said.replace('Own', f'Own{n}')}" for n, (_, said, _) in enumerate(UNKNOWN)
    ]
    assert world.rows("SELECT value, complete, missing FROM score ORDER BY score_name") == [
        score for *_, score in UNKNOWN
    ]


@pytest.mark.long
def test_a_question_that_the_target_took_away_stops_no_publication(world: World) -> None:
    a, b = question("a", [option("no", 0)]), question("b", [option("no", 0)])
    world.questionnaires = [questionnaire("q1", a, b)]
    own_score(world, VALID.replace('"a"', '"a", "b"'))
    assert world.publish().remarks == []
    world.time += timedelta(days=1)
    world.questionnaires = [questionnaire("q1", a)]
    said = "`questions` of the score Own names the question b, and q1 has none of that linkId or code: it has a."
    assert world.publish().remarks == [f"score: scores/own.toml: {said}"]


def test_two_files_of_one_score_are_named(world: World) -> None:
    own_score(world, VALID)
    own_score(world, VALID, "other.toml")
    with pytest.raises(PublicationError, match=r"scores/own.toml: the score Own is in scores/other.toml already"):
        world.publish()


@pytest.mark.long
def test_options_without_a_system_count(world: World) -> None:
    options = [option("no", 0), option("yes", 2.5)]
    for each in options:
        del each["valueCoding"]["system"]
    world.questionnaires = [questionnaire("q1", question("a", options))]
    given = {"linkId": "a", "answer": [{"valueCoding": {"code": "yes"}}]}
    bare = START, {"questionnaire": "http://chart/Questionnaire/q1", "item": [given]}
    assert scores(world, bare) == [("Form", 2.5, True, 0, None)]
