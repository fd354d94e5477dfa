"""Answers as rows, and as a wide table for each questionnaire; free text only where the home publishes it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.reports import wide_tables
from pipelines.reports.forms import AskedQuestion, Option, ask_alike
from pipelines.reports.publication import PublicationError
from tests.support.publishing import PAGED, START, World, carry_over, publish_only, unpublished

LOINC = "http://loinc.org"


def coded(link: str, *codes: str, **more: Any) -> dict[str, Any]:
    return {"linkId": link, "answer": [{"valueCoding": {"system": LOINC, "code": code}} for code in codes]} | more


def number(link: str, value: float) -> dict[str, Any]:
    return {"linkId": link, "answer": [{"valueDecimal": value}]}


STORY = {"linkId": "story", "answer": [{"valueString": "SECRET"}]}


def question(link: str, kind: str = "choice", *codes: str, **more: Any) -> dict[str, Any]:
    options = [{"valueCoding": {"system": LOINC, "code": code, "display": f"In words {code}"}} for code in codes]
    return {"linkId": link, "type": kind, "text": f"What of {link}?", "answerOption": options} | more


def questionnaire(name: str, *items: dict[str, Any], of: str = "q1") -> dict[str, Any]:
    return {"resourceType": "Questionnaire", "id": of, "name": name, "status": "active", "item": list(items)}


CHECK_UP = questionnaire(
    "CheckUp 2",
    question("mood", "choice", "low", "high", code=[{"system": LOINC, "code": "m-1"}]),
    question("signs", "choice", "a", "b", repeats=True),
    {"linkId": "body", "type": "group", "item": [question("7-weight (kg)", "decimal")]},
    question("story", "text"),
    question("patient_id", "decimal"),
    question("Mood", "decimal"),
)


def response(*items: dict[str, Any], of: str = "q1") -> tuple[datetime | None, dict[str, Any]]:
    return START, {"questionnaire": f"http://chart/Questionnaire/{of}", "item": list(items)}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A home whose tables of answers are made in memory."""
    publish_only(monkeypatch, wide=True)
    with unpublished(tmp_path) as made:
        made.questionnaires = [CHECK_UP]
        yield made


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[World]:
    """A home whose publications make all tables."""
    made = World(tmp_path)
    made.questionnaires = [CHECK_UP]
    yield made
    made.ledger.close()


def answer_in_full(world: World) -> None:
    deep = {"linkId": "body", "item": [number("7-weight (kg)", 61.5)]}
    full = response(coded("signs", "b", "a", item=[coded("mood", "low")]), deep, STORY, number("Mood", 3))
    records = {"r1": full, "r2": response(coded("mood", "gone")), "r3": response()}
    carry_over(world, "QuestionnaireResponse", records)


def test_each_answer_is_a_row_with_its_words_and_without_its_free_text(world: World) -> None:
    answer_in_full(world)
    world.publish()
    shown = """SELECT response_id, questionnaire, link_id, position, question_code, kind, option_code, option_display,
        number, text FROM answer ORDER BY ALL"""
    assert world.rows(shown) == [
        ("id-r1", "CheckUp 2", "7-weight (kg)", 1, None, "number", None, None, 61.5, None),
        ("id-r1", "CheckUp 2", "Mood", 1, None, "number", None, None, 3.0, None),
        ("id-r1", "CheckUp 2", "mood", 1, "m-1", "choice", "low", "In words low", None, None),
        ("id-r1", "CheckUp 2", "signs", 1, None, "choice", "b", "In words b", None, None),
        ("id-r1", "CheckUp 2", "signs", 2, None, "choice", "a", "In words a", None, None),
        ("id-r1", "CheckUp 2", "story", 1, None, "text", None, None, None, None),
        ("id-r2", "CheckUp 2", "mood", 1, "m-1", "choice", "gone", None, None, None),
    ]


@pytest.mark.parametrize("beyond", ["1e999", "NaN"])
def test_an_answer_that_no_double_holds_is_left_out(world: World, beyond: Any) -> None:
    """The client passes such a number on as a text."""
    carry_over(world, "QuestionnaireResponse", {"r1": response(number("Mood", beyond), number("7-weight (kg)", 2))})
    world.publish()
    assert world.rows("SELECT link_id, kind, number FROM answer") == [("7-weight (kg)", "number", 2.0)]


def test_a_questionnaire_becomes_a_wide_table_whose_comments_have_the_words(world: World) -> None:
    answer_in_full(world)
    done = world.publish()
    assert world.rows("SELECT * EXCLUDE (authored_at) FROM response_check_up_2") == [
        ("id-r1", "p1", "low", ["b", "a"], 61.5, None, 3.0),
        ("id-r2", "p1", "gone", None, None, None, None),
        ("id-r3", "p1", None, None, None, None, None),
    ]
    described = "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'response_check_up_2'"
    comments = dict(world.rows(described))
    assert list(comments)[3:] == ["mood", "signs", "q_7_weight_kg", "patient_id_2", "mood_2"]
    assert comments["mood"] == "What of mood? (linkId mood). Codes: high In words high; low In words low."
    assert done.rows["response_check_up_2"] == 3


def test_free_text_is_published_only_where_the_home_says_so(whole: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise no table has it."""
    answer_in_full(whole)
    (whole.home / "reports.toml").write_text("publish_free_text = true\n")
    with monkeypatch.context() as patch:
        publish_only(patch, wide=True)
        whole.publish()
    assert whole.rows("SELECT text FROM answer WHERE kind = 'text'") == [("SECRET",)]
    assert whole.rows("SELECT story FROM response_check_up_2 WHERE story IS NOT NULL") == [("SECRET",)]
    (whole.home / "reports.toml").write_text("publish_free_text = false\n")
    done = whole.publish()
    assert whole.rows("SELECT count(*), count(text) FROM answer WHERE kind = 'text'") == [(1, 0)]
    assert whole.rows("SELECT count(*) FROM duckdb_columns() WHERE column_name = 'story'") == [(0,)]
    assert b"SECRET" not in done.path.read_bytes()


def test_answers_to_a_question_that_the_questionnaire_no_longer_has_keep_their_column(world: World) -> None:
    answer_in_full(world)
    world.read()
    world.time += timedelta(days=1)
    world.questionnaires = [questionnaire("CheckUp 2", question("mood", "choice", "low"))]
    world.publish()
    assert world.rows("SELECT signs, q_7_weight_kg FROM response_check_up_2 WHERE response_id = 'id-r1'") == [
        (["b", "a"], ["61.5"])
    ]
    [(comment,)] = world.rows("SELECT comment FROM duckdb_columns() WHERE column_name = 'signs'")
    assert comment == "A question without words (linkId signs). The questionnaire no longer has this question."


def columns(world: World, table: str) -> list[str]:
    """Return the columns of a wide table without those that every wide table has."""
    shown = f"SELECT column_name FROM duckdb_columns() WHERE table_name = '{table}' ORDER BY column_index"
    return [name for (name,) in world.rows(shown)][3:]


def test_another_questionnaire_whose_name_gives_a_table_that_is_there_has_its_id_behind_the_name(
    whole: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The questionnaire that was seen first keeps the table; a name that the home gives has precedence."""
    publish_only(monkeypatch, wide=True)
    whole.read()
    whole.questionnaires.append(questionnaire("check-up 2", question("x"), of="a-2"))
    records = {"r1": response(coded("mood", "low")), "r2": response(coded("x", "a"), of="a-2")}
    carry_over(whole, "QuestionnaireResponse", records)
    whole.publish()
    assert whole.rows("SELECT response_id, mood FROM response_check_up_2") == [("id-r1", "low")]
    assert whole.rows("SELECT response_id, x FROM response_check_up_2_a_2") == [("id-r2", "a")]
    [(comment,)] = whole.rows("SELECT comment FROM duckdb_tables() WHERE table_name = 'response_check_up_2_a_2'")
    said = (
        "The name of check-up 2 (a-2) gives response_check_up_2, which another questionnaire has; "
        "a name for it may be set in reports.toml, under [response_tables]."
    )
    assert comment.endswith(said)
    assert whole.published.remarks == [f"response_check_up_2_a_2: {said}"]
    (whole.home / "reports.toml").write_text('[response_tables]\na-2 = "older_check_up"\n')
    whole.publish()
    assert whole.rows("SELECT response_id, x FROM response_older_check_up") == [("id-r2", "a")]
    (whole.home / "reports.toml").write_text('[response_tables]\na-2 = "own"\nq1 = "own"\n')
    with pytest.raises(PublicationError) as caught:
        whole.publish()
    assert str(caught.value) == (
        "not published: the questionnaire a-2 would have the table response_own, as another has: "
        "give it another name in reports.toml of the home, under [response_tables]"
    )
    assert whole.rows("SELECT response_id, x FROM response_older_check_up") == [("id-r2", "a")], "it stays"


@pytest.mark.long
def test_a_copy_of_a_questionnaire_shares_its_table(world: World) -> None:
    world.questionnaires.append(CHECK_UP | {"id": "q2"})
    records = {"r1": response(coded("mood", "low")), "r2": response(coded("mood", "high"), of="q2")}
    carry_over(world, "QuestionnaireResponse", records)
    world.publish()
    shown = "SELECT response_id, questionnaire_id, mood FROM response_check_up_2"
    assert world.rows(shown) == [("id-r1", "q1", "low"), ("id-r2", "q2", "high")]
    assert columns(world, "response_check_up_2")[:3] == ["questionnaire_id", "mood", "signs"]


@pytest.mark.long
def test_versions_of_one_canonical_url_share_a_table_with_the_questions_of_all(world: World) -> None:
    """A question with another kind of answer has a column for each kind."""
    url = "http://example.org/mood"
    now = [question("mood", "decimal"), question("sleep", "choice", "bad")]
    first = questionnaire("Mood", question("mood", "choice", "low")) | {"url": url, "version": "1"}
    world.questionnaires = [first, questionnaire("Mood", *now, of="q2") | {"url": url, "version": "2"}]
    old = response(coded("mood", "low"))[1] | {"questionnaire": f"{url}|1"}
    new = response(number("mood", 3), coded("sleep", "bad"))[1] | {"questionnaire": f"{url}|2"}
    carry_over(world, "QuestionnaireResponse", {"r1": (START, old), "r2": (START, new)})
    world.publish()
    assert columns(world, "response_mood") == ["questionnaire_id", "mood", "mood_2", "sleep"]
    assert world.rows("SELECT * EXCLUDE (patient_id, authored_at) FROM response_mood") == [
        ("id-r1", "q1", "low", None, None),
        ("id-r2", "q2", None, 3.0, "bad"),
    ]


def versions(first: dict[str, Any], second: dict[str, Any]) -> list[dict[str, Any]]:
    """Return two versions of one canonical URL, with one question each."""
    url = {"url": "http://example.org/mood"}
    return [questionnaire("Mood", first) | url, questionnaire("Mood", second, of="q2") | url]


@pytest.mark.long
def test_a_linkid_with_two_meanings_has_a_column_for_each_and_a_remark(
    whole: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target no longer has the old questionnaire. Its answers keep their meaning."""
    publish_only(monkeypatch, *PAGED, wide=True)
    was, now = question("1", "choice", "low"), question("1", "choice", "low", text="How is your sleep?")
    whole.questionnaires = versions(was, now)[:1]
    whole.read()
    whole.questionnaires = versions(was, now)[1:]
    records = {"r1": response(coded("1", "low")), "r2": response(coded("1", "low"), of="q2")}
    carry_over(whole, "QuestionnaireResponse", records)
    done = whole.publish()
    assert (done.path.parent / "parquet" / "response_mood.parquet").exists()
    shown = "SELECT response_id, questionnaire_id, q_1, q_1_2 FROM response_mood"
    assert whole.rows(shown) == [("id-r1", "q1", "low", None), ("id-r2", "q2", None, "low")]
    said = "Versions of Mood ask different things by one linkId, and each has a column of its own (1: q_1, q_1_2)."
    assert done.remarks == [f"response_mood: {said}"]
    assert f"response_mood: {said}" in done.page.read_text()
    [(comment,)] = whole.rows("SELECT comment FROM duckdb_tables() WHERE table_name = 'response_mood'")
    assert comment.endswith(said)
    described = "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'response_mood'"
    comments = dict(whole.rows(described))
    assert comments["q_1"] == "What of 1? (linkId 1). So asked by Mood (q1) alone. Codes: low In words low."
    assert comments["q_1_2"] == "How is your sleep? (linkId 1). So asked by Mood (q2) alone. Codes: low In words low."


def meant(code: str, display: str, system: str) -> dict[str, Any]:
    return {"answerOption": [{"valueCoding": {"system": system, "code": code, "display": display}}]}


CODE = [{"system": LOINC, "code": "m-1"}]
OWN = "http://chart/own"


IN_TWO_VERSIONS: tuple[tuple[dict[str, Any], dict[str, Any], bool], ...] = (
    ({}, {"text": "what of MOOD"}, True),
    ({}, {"text": "What of mood today?"}, False),
    ({"code": CODE}, {"text": "Wie ist die Stimmung?", "code": CODE}, True),
    ({"code": CODE}, {"code": [{"system": LOINC, "code": "m-2"}]}, False),
    (meant("1", "Never", OWN), meant("1", "never.", OWN), True),
    (meant("1", "Never", OWN), meant("1", "Always", OWN), False),
    (meant("1", "Never", LOINC), meant("1", "Nie", LOINC), True),
)
"""Differences between a question in two versions of a questionnaire, and whether it is still the same question."""


@pytest.mark.long
def test_a_question_is_one_in_two_versions_if_code_words_and_options_say_so(world: World) -> None:
    records = {}
    for n, (*pair, _) in enumerate(IN_TWO_VERSIONS):
        for version, about in zip("ab", pair, strict=True):
            form = questionnaire(f"Mood {n}", question("mood", **about), of=f"{version}{n}")
            world.questionnaires.append(form | {"url": f"http://example.org/mood/{n}"})
            records[f"r{version}{n}"] = response(coded("mood", "1"), of=f"{version}{n}")
    carry_over(world, "QuestionnaireResponse", records)
    done = world.publish()
    tables = {f"response_mood_{n}": are_one for n, (*_, are_one) in enumerate(IN_TWO_VERSIONS)}
    assert {each: columns(world, each) for each in tables} == {
        each: ["questionnaire_id", "mood", *([] if are_one else ["mood_2"])] for each, are_one in tables.items()
    }
    assert {each.partition(":")[0] for each in done.remarks} == {
        each for each, are_one in tables.items() if not are_one
    }


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        *[(one, other, False) for one, other in (("< 5", "> 5"), ("≤ 5", "≥ 5"), ("+", "++"), ("-1", "1"))],
        *[(one, other, False) for one, other in (("🙂", "🙁"), ("1.5", "15"), ("1-2", "12"), ("5 %", "5"))],
        *[(one, other, False) for one, other in (("...", "?"), ("की", "का"), ("Temp > 38?", "Temp < 38?"))],
        *[(one, other, True) for one, other in (("Sad?", " sad "), ("Straße", "STRASSE"), ("At 38.", "at 38"))],
        *[(one, other, True) for one, other in (("Caf\u00e9?", "Cafe\u0301"), ("Follow-up: PHQ-9", "follow up PHQ9"))],
    ],
)
def test_signs_that_carry_a_meaning_are_compared_and_others_are_not(one: str, other: str, are_one: bool) -> None:
    said = [AskedQuestion("1", text, "choice", False) for text in (one, other)]
    offered = [
        AskedQuestion("1", "Which?", "choice", False, options=(Option(OWN, "x", text),)) for text in (one, other)
    ]
    assert [ask_alike([first], [second]) for first, second in (said, offered)] == [are_one] * 2


@pytest.mark.long
def test_a_response_that_names_a_canonical_url_is_of_that_questionnaire(world: World) -> None:
    """If several have one URL, the URL without a version means the one without a version."""
    urls = ({"url": "http://x.org/one"}, {"url": "http://x.org/two"}, {"url": "http://x.org/two", "version": "3"})
    asked = [question("mood", "choice", "low")]
    world.questionnaires = [questionnaire(f"Form {n}", *asked, of=f"q{n}") | more for n, more in enumerate(urls, 1)]
    named = {"r1": "http://x.org/one", "r2": "http://x.org/two", "r3": "http://x.org/two|3"}
    carry_over(
        world,
        "QuestionnaireResponse",
        {key: (START, {"questionnaire": url, "item": [coded("mood", "low")]}) for key, url in named.items()},
    )
    world.publish()
    found = world.rows("SELECT response_id, questionnaire_id, option_display FROM answer ORDER BY ALL")
    assert found == [(f"id-r{n}", f"q{n}", "In words low") for n in (1, 2, 3)]


def test_a_questionnaire_without_name_or_letters_still_has_a_table(world: World) -> None:
    world.questionnaires = [questionnaire("健康", question("質問", "decimal"))]
    records = {"r1": response(number("質問", 1)), "r2": response(number("x", 2), of="q-9")}
    carry_over(world, "QuestionnaireResponse", records)
    world.publish()
    assert world.rows("SELECT response_id, question_1 FROM response_q1") == [("id-r1", 1.0)]
    assert world.rows("SELECT response_id, x FROM response_q_9") == [("id-r2", ["2"])]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("publish_free_text = 'yes'", "reports.toml: `publish_free_text` is true or false"),
        ("free_text = true", "reports.toml: there is no setting `free_text`; possible: publish_free_text, publish"),
        ("publish_free_text", "reports.toml: the file is not valid TOML: "),
        (
            "[response_tables]\nq1 = 'Not so'",
            "reports.toml: `response_tables` is a table, id = name: a name has lower",
        ),
        ("response_tables = 1", "reports.toml: `response_tables` is a table, id = name: a name has lower"),
    ],
)
def test_an_unusable_setting_ends_the_publication_with_one_sentence(whole: World, text: str, why: str) -> None:
    (whole.home / "reports.toml").write_text(text)
    with pytest.raises(PublicationError) as caught:
        whole.publish()
    assert str(caught.value).startswith(f"not published: {why}")
    assert "\n" not in str(caught.value)


def test_settings_that_are_a_link_to_themselves_cannot_be_read(whole: World) -> None:
    (whole.home / "reports.toml").symlink_to("reports.toml")
    with pytest.raises(PublicationError, match=r"^not published: reports\.toml: cannot be read: "):
        whole.publish()


@pytest.mark.long
def test_many_responses_to_a_long_form_fit_into_memory(whole: World, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_only(monkeypatch, "answer")
    items = [coded(f"q{at}", "low") for at in range(60)]
    about = {"resourceType": "QuestionnaireResponse", "status": "completed", "questionnaire": "Questionnaire/q1"}
    whole.responses = [about | {"id": f"r{at}", "item": items} for at in range(2_100)]
    whole.publish()
    assert whole.rows("SELECT count(*), count(DISTINCT response_id) FROM answer") == [(126_000, 2_100)]


@pytest.mark.long
def test_an_answer_to_an_option_without_a_system_has_the_words_of_the_option(world: World) -> None:
    option = {"valueCoding": {"code": "low", "display": "In words low"}}
    world.questionnaires = [questionnaire("Bare", {"linkId": "mood", "type": "choice", "answerOption": [option]})]
    given = {"linkId": "mood", "answer": [{"valueCoding": {"code": "low"}}]}
    carry_over(world, "QuestionnaireResponse", {"r1": response(given)})
    world.publish()
    assert world.rows("SELECT option_system, option_code, option_display FROM answer") == [
        (None, "low", "In words low")
    ]


def test_no_answer_is_missing_from_a_wide_table(world: World) -> None:
    """Options that are numbers, several answers, and questions of a group that repeats."""
    group = {"linkId": "group", "type": "group", "repeats": True, "item": [question("dose", "integer")]}
    numbers = {"linkId": "grade", "type": "choice", "answerOption": [{"valueInteger": 1}, {"valueInteger": 2}]}
    world.questionnaires = [
        questionnaire("Odd", numbers, question("pulse", "integer", repeats=True), group, question("one", "choice", "x"))
    ]
    dose = [{"linkId": "group", "item": [{"linkId": "dose", "answer": [{"valueInteger": each}]}]} for each in (7, 3)]
    pulse = {"linkId": "pulse", "answer": [{"valueInteger": 60}, {"valueInteger": 90}]}
    given = response({"linkId": "grade", "answer": [{"valueInteger": 2}]}, pulse, *dose, coded("one", "x", "y"))
    carry_over(world, "QuestionnaireResponse", {"r1": given})
    world.publish()
    assert world.rows("SELECT grade, pulse, dose, one FROM response_odd") == [("2", [60, 90], [7, 3], "x")]


def test_a_form_with_many_questions_gives_the_rows_that_a_small_one_gives(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_in_full(world)
    carry_over(world, "QuestionnaireResponse", {"r4": response(coded("mood", "low"), of="q2")}, "ffffffffffff")
    other = question("mood", "choice", "low", code=[{"system": LOINC, "code": "m-2"}])
    world.questionnaires = [CHECK_UP | {"url": "u"}, questionnaire("CheckUp 2", other, of="q2") | {"url": "u"}]
    world.publish()
    few = world.rows("FROM response_check_up_2")
    assert [each[4] for each in few] == ["low", "gone", None, None]
    monkeypatch.setattr(wide_tables, "FEW", 0)
    world.publish()
    assert world.rows("FROM response_check_up_2") == few
