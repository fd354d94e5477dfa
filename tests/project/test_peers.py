"""The comparison with another server: equal bodies, honest counts, a table that names errors. None of it needs Java."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

from bench.peers import servers
from bench.peers.__main__ import arguments
from bench.peers.bodies import (
    BASE_URL,
    BUNDLE,
    MAKE,
    STAMP,
    bundles,
    loading,
    reference,
    singles,
    stamped,
)
from bench.peers.servers import Server
from bench.peers.table import Line, markdown
from bench.peers.work import LUA, WORKS, Bundles, Measured, Work, searches, told
from fhir_service.interface.checking import check
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from tests.support.serving import Answers, served


def references(body: object) -> Iterator[str]:
    """All references in a body."""
    if isinstance(body, dict):
        yield from (value for name, value in body.items() if name == "reference")
        body = [*body.values()]
    if isinstance(body, list):
        for part in body:
            yield from references(part)


# --- Bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conditional", [True, False])
@pytest.mark.parametrize("kind", MAKE)
def test_bundles_of_two_servers_differ_in_their_type_alone(kind: str, conditional: bool):
    ours = [json.loads(one) for one in bundles(kind, 2, "batch", conditional)]
    theirs = [json.loads(one) for one in bundles(kind, 2, "transaction", conditional)]
    assert [one.pop("type") for one in (*ours, *theirs)] == ["batch"] * 2 + ["transaction"] * 2
    assert ours == theirs
    assert [len(one["entry"]) for one in ours] == [BUNDLE, BUNDLE]
    assert ["ifNoneExist" in entry["request"] for entry in ours[0]["entry"]] == [conditional] * BUNDLE


@pytest.mark.parametrize("kind", MAKE)
def test_no_record_is_sent_twice(kind: str):
    identifiers = [
        text
        for number in (1, 2)
        for body in bundles(kind, 2, "batch", conditional=False)
        for text in re.findall(r'"value":"([0-9-]+)"', stamped(body, number).decode())
    ]
    assert len(identifiers) == len(set(identifiers)) == 2 * 2 * BUNDLE
    assert {len(text.partition("-")[0]) for text in identifiers} == {len(STAMP)}


def test_the_script_of_wrk_knows_the_stamp():
    assert f'string.rep("{STAMP[0]}", {len(STAMP)})' in LUA.read_text(encoding="utf-8")


def test_bodies_name_only_records_that_are_loaded():
    known = {f"{one['resourceType']}/{one['id']}" for one in reference()}
    named = {one for kind in MAKE for body in singles(kind, 2_000) for one in references(json.loads(body))}
    assert named <= known
    assert json.loads(singles("QuestionnaireResponse", 1)[0])["questionnaire"] == f"{BASE_URL}/Questionnaire/q-bench"
    assert {"Questionnaire/q-bench"} <= known


def test_both_servers_load_the_same_reference_data():
    entries = [entry for body in loading() for entry in json.loads(body)["entry"]]
    assert [entry["resource"] for entry in entries] == [*reference()]
    assert [entry["request"]["url"] for entry in entries] == [f"{r['resourceType']}/{r['id']}" for r in reference()]


@pytest.mark.parametrize("kind", MAKE)
def test_bodies_keep_the_rules_of_the_interface(kind: str):
    site = Site(BASE_URL, "example", "demo")
    for body in singles(kind, 60):
        assert check(RESOURCES[kind], parse_json(stamped(body, 1)), site).problems == []


def test_the_searches_of_both_differ_only_in_what_is_added():
    assert [one + "&_total=accurate" for one in searches("")] == searches("&_total=accurate")


# --- Counts -------------------------------------------------------------------------------------------


def test_an_answer_that_was_not_expected_is_no_work_done():
    line = '{"seconds":2.0,"lost":3,"p50_ms":1.5,"p99_ms":9.0,"statuses":[{"201":70,"422":1},{"201":30}]}'
    measured = told(f"Running 2s test\n{line}\n", "201")
    assert measured == Measured(2.0, 100, Counter({"422": 1, "lost": 3}), 1.5, 9.0)
    assert measured.rate == 50


@pytest.fixture
def answering() -> Iterator[list[tuple[int, bytes]]]:
    """Answers that a server gives one after another; the first is its address."""
    answers: list[tuple[int, bytes]] = []

    class Handler(Answers):
        def do_POST(self) -> None:
            self.sent()
            self.answer(*answers.pop(0))

    with served(Handler) as url:
        answers.append((0, url.encode()))
        yield answers


def test_entries_of_bundles_are_counted_one_by_one(answering: list[tuple[int, bytes]]):
    url = answering.pop()[1].decode()
    created = b'{"response":{"status":"201 Created","location":"http://a/Task/t-1/_history/1"}}'
    refused = b'{"response":{"status":"422","outcome":{}}}'
    answering += [(200, created * (BUNDLE - 2) + refused), (500, b"{}"), (200, created * BUNDLE)]
    sender = Bundles(Server("one", url, {}, "batch"), [b"{}"], 1)
    sender.send(1, range(3))
    assert sender.right == 2 * BUNDLE - 2
    assert sender.wrong == {"422": 1, "lost": 1, "500": BUNDLE}
    assert sender.tasks == ["t-1"] * (2 * BUNDLE - 2)


# --- The table ----------------------------------------------------------------------------------------


def test_the_table_has_medians_and_ratios_and_names_errors():
    def rounds(*rates: int, **wrong: int) -> list[Measured]:
        return [Measured(2.0, 2 * rate, Counter(wrong) if not at else Counter()) for at, rate in enumerate(rates)]

    read, write = Work("reads", "read", 1), Work("tasks", "create", 32)
    lines = [
        Line(read, {"ours": rounds(900, 3_000, 1_500), "other": rounds(1_000, 1_000, 1_000)}, [2_000, 1_000, 1_200.4]),
        Line(write, {"ours": rounds(5_000), "other": rounds(100, lost=2)}, [1_000]),
    ]
    assert markdown(lines, ["ours", "other"]).splitlines() == [
        "| Work, a second | clients | ours | other | ours / other | fsyncs a second |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| read | 1 | 1,500 | 1,000 | 1.50 | 1,200 |",
        "| create | 32 | 5,000 | 100 (errors: 2 lost) | - | 1,000 |",
    ]


def test_rows_that_read_come_before_rows_that_write():
    reading = [work.group in {"reads", "searches"} for work in WORKS]
    assert reading == sorted(reading, reverse=True)


# --- The command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--tasks", "1500"], "--tasks: a multiple of 1,000 is expected, as many for each patient"),
        (["--tasks", "0"], "--tasks: a multiple of 1,000 is expected, as many for each patient"),
        (["--rounds", "0"], "--rounds: a number above zero is expected"),
        (["--seconds", "-1"], "--seconds: a number above zero is expected"),
        (["--warm", "-1"], "--warm: a number from zero on is expected"),
        (["--only", "writes"], "argument --only: invalid choice: 'writes'"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(words: list[str], says: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        arguments(words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_a_program_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setattr(servers, "DEBIAN", tmp_path)
    monkeypatch.setattr(shutil, "which", {"java": "/bin/java", "wrk": "/bin/wrk"}.get)
    assert servers.missing() == (
        "Not installed: mvn, PostgreSQL. Install them first; "
        "on Debian: apt-get install openjdk-17-jdk-headless maven postgresql wrk"
    )
