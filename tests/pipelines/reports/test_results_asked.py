"""How results are asked for: by ids, so many at once, or with the reports that name them."""

from collections.abc import Iterator
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import duckdb
import pytest

from pipelines.client.capabilities import capabilities_of
from pipelines.client.replies import NotDone, NotSent, Reply, RequestRefused, TimedOut, UnknownOutcome
from pipelines.reports.pages import SweepIncomplete
from pipelines.reports.publish import publish
from pipelines.reports.results import INCLUDE, RESULT, sweep_including, sweep_results, with_results
from pipelines.reports.sweep import FILES, folder_of, kept_sweep, sweep
from pipelines.session.sweeping import reports_swept
from tests.support.publishing import TARGET, Target, World, publish_only, report
from tests.support.results import report_of, result

MANY = 1_000
"""Results, which take the publication of a test a second."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    publish_only(monkeypatch, "observation")
    made = World(tmp_path)
    made.reports = []
    yield made
    made.ledger.close()


class Patient(Target):
    """A target that answers once it was asked for two groups of ids."""

    def __init__(self, resources: list[dict[str, Any]]) -> None:
        super().__init__(resources)
        self.both, self.under_way, self.most = Barrier(2, timeout=60), 0, 0

    def pages(self, resource_type: str, params: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.both.wait()
        yield from super().pages(resource_type, params)
        self.under_way -= 1


class Paged(Target):
    """A target that puts at most so many resources on a page, and takes at most so many ids in a request.

    fails: how it answers a request for more.
    """

    def __init__(self, resources: list[dict[str, Any]], page: int = 1_000, ids: int = 1_000) -> None:
        super().__init__(resources)
        self.page, self.ids, self.answers = page, ids, 0
        self.fails: Exception = RequestRefused(Reply(400))

    def pages(self, resource_type: str, params: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
        [whole] = super().pages(resource_type, params)
        if params and "_id" in params and len(params["_id"].split(",")) > self.ids:
            raise self.fails
        size = min(self.page, int((params or {}).get("_count", 100)))
        for at in range(0, max(len(whole["entry"]), 1), size):
            self.answers += 1
            link = [{"relation": "next", "url": f"?_offset={at + size}"}] if at + size < len(whole["entry"]) else []
            yield {**whole, "entry": whole["entry"][at : at + size], "link": link}

    @property
    def groups(self) -> list[int]:
        return [len(params["_id"].split(",")) for _, params in self.asked if params and "_id" in params]


def swept(world: World, target: Target, count: int, length: int) -> list[str]:
    """Publish one report with so many results, whose ids are so long, and read them from a target anew.

    Few of them are published: those that are read lie in a file until then.
    """
    names = [f"{number:0{length}}" for number in range(count)]
    world.reports, world.results = [report_of("r1", *names)], [result(name) for name in names]
    world.read()
    target.resources = world.results
    assert sweep_results(target, world.home, TARGET) == count
    if count < MANY:
        world.publish()
        assert world.rows("SELECT count(*) FROM observation") == [(count,)]
    file = folder_of(world.home, TARGET) / FILES[RESULT][0]
    there = duckdb.read_parquet(str(file)).filter("gone_at IS NULL").project("report_id").fetchall()
    assert sorted(there) == [(name,) for name in names]
    return names


@pytest.mark.long
def test_results_are_requested_by_as_many_ids_as_a_url_holds_two_requests_at_a_time(world: World) -> None:
    """REPORT-01: ids as long as those of the bundled service, a hundred in 4,000 characters; short ones by 500."""
    target = Patient([])
    names = swept(world, target, 390, 36)
    asked = [params["_id"].split(",") for _, params in target.asked if params]
    assert sorted(map(len, asked)) == [84, 102, 102, 102]
    assert all(len(urlencode({"_id": ",".join(some)})) <= len("_id=") + 4_000 for some in asked)
    assert sorted(name for some in asked for name in some) == names
    assert target.most == 2
    short = Paged([])
    swept(world, short, 1_200, 4)
    assert short.groups == [500, 500, 200]
    assert {params["_count"] for _, params in short.asked if params} == {"500", "200"}


@pytest.mark.long
def test_no_more_ids_are_asked_for_than_a_page_of_the_target_holds(world: World) -> None:
    """REPORT-01: further pages would each repeat the whole address."""
    target = Paged([], page=100)
    swept(world, target, 1_900, 4)
    assert target.groups[:2] == [500, 500]
    # Two groups are under way at once, so that one or two more may be asked for before the first answer is read.
    assert target.groups.count(500) <= 4
    assert set(target.groups) == {500, 100}
    assert target.answers == 19


def test_a_target_that_refuses_so_many_ids_is_asked_for_fewer(world: World) -> None:
    """REPORT-01"""
    target = Paged([], ids=130)
    swept(world, target, 3_100, 4)
    assert max(each for each in target.groups if each <= 130) == 125
    # Two groups are under way at once: without what was learnt by them there would be 18.
    assert len([each for each in target.groups if each > 130]) <= 10
    deaf = Paged(target.resources, ids=50)
    with pytest.raises(SweepIncomplete, match="Observations by `_id`: HTTP 400"):
        sweep_results(deaf, world.home, TARGET)


@pytest.mark.alike
@pytest.mark.parametrize(
    "fails",
    [NotDone(Reply(413)), pytest.param(UnknownOutcome("HTTP 414"), marks=pytest.mark.long), TimedOut("ReadTimeout")],
)
def test_a_target_that_fails_at_so_many_ids_is_asked_for_few_and_not_often(fails: Exception, world: World) -> None:
    """REPORT-01: it may be away, so that each try is a long wait."""
    target = Paged([], ids=130)
    target.fails = fails
    swept(world, target, 1_100, 4)
    assert len([each for each in target.groups if each > 130]) <= 2
    assert max(each for each in target.groups if each <= 130) == 100
    away = Paged(target.resources, ids=0)
    away.fails = fails
    with pytest.raises(SweepIncomplete, match="Observations by `_id`: "):
        sweep_results(away, world.home, TARGET)
    assert len(away.groups) <= 4


def test_a_first_page_of_one_result_does_not_make_the_others_asked_for_one_by_one(world: World) -> None:
    """REPORT-01"""
    target = Paged([], page=1)
    swept(world, target, 1_100, 4)
    assert set(target.groups[3:]) == {10}


class Including(Paged):
    """A target that includes results with the reports of each page, as far as they fit; `refuses`: by 400.

    counts_all: it counts what it includes in its total, which R4 does not allow.
    """

    def __init__(
        self, resources: list[dict[str, Any]], most: int = 1_000, refuses: bool = False, counts_all: bool = False
    ) -> None:
        super().__init__(resources)
        self.most, self.refuses, self.counts_all = most, refuses, counts_all

    def pages(self, resource_type: str, params: dict[str, str] | None = None, *_: object) -> Iterator[dict[str, Any]]:
        including = (params or {}).get("_include") == "DiagnosticReport:result"
        by_id = {each["id"]: each for each in self.resources if each["resourceType"] == "Observation"}
        for page in super().pages(resource_type, params):
            if including and self.refuses:
                raise RequestRefused(Reply(400))
            named = [r["reference"].rpartition("/")[2] for e in page["entry"] for r in e["resource"].get("result", ())]
            wanted = dict.fromkeys(["of-no-report", *named]) if including else {}
            there = [by_id[name] for name in wanted if name in by_id][: self.most]
            beside = [{"resource": each, "search": {"mode": "include"}} for each in there]
            total = page["total"] + (len(beside) if self.counts_all else 0)
            yield {**page, "total": total, "entry": page["entry"] + beside}


def read_including(world: World, target: Target) -> int:
    """Sweep reports and results as a session does at a target that says it includes them."""
    with with_results(target, world.home) as including:
        sweep_including(including, world.home, TARGET, world.clock)
        file = including.file if including.file.exists() else None
        found = sweep_results(target, world.home, TARGET, world.clock, file)
    assert not (world.home / "scratch").exists()
    return found


def some_reports(world: World) -> list[dict[str, Any]]:
    """300 reports with two results each, of which every third is shared with the next report; one is gone."""
    results = [result(f"o{number:03}", number) for number in range(600)]
    reports = [report_of(f"r{at:03}", f"o{2 * at:03}", f"o{2 * at + 1:03}", f"o{2 * at + 2:03}") for at in range(300)]
    return [*reports, *results, result("of-no-report", 1)]


def test_results_that_come_with_the_reports_are_not_asked_for_again(world: World) -> None:
    """REPORT-01: only what did not come is asked for by id; none that no report names is kept."""
    plain, including, some = (Including(some_reports(world)) for _ in range(3))
    sweep(plain, world.home, TARGET, world.clock)
    assert sweep_results(plain, world.home, TARGET, world.clock) == 600
    before = plain.answers
    assert read_including(world, including) == 600
    assert (including.groups, before, including.answers) == ([1], 5, 4)
    some.most = 150
    assert read_including(world, some) == 600
    assert sum(some.groups) == 601 - 3 * 149
    world.published = publish(world.home, world.ledger, kept_sweep(world.home, TARGET))
    assert world.rows("SELECT count(*), count(DISTINCT observation_id), sum(value), sum(changes) FROM observation") == [
        (600, 600, sum(range(600)), 0)
    ]


@pytest.mark.parametrize("included", [["DiagnosticReport:result", "DiagnosticReport:subject"], ["*"], "odd", None])
def test_a_statement_says_whether_reports_bring_their_results(included: Any, world: World) -> None:
    """REPORT-01: the file of those that came is gone once they are read."""
    resources = [
        {"type": "DiagnosticReport", "searchInclude": included},
        {"type": "Observation", "searchParam": [{"name": "_id"}]},
    ]
    found, target = capabilities_of({"rest": [{"resource": resources}]}), Including(some_reports(world))
    connection = SimpleNamespace(client=target, capabilities=found)
    session: Any = SimpleNamespace(home=world.home, target=TARGET, connection=connection)
    with reports_swept(session) as (swept, file):
        assert swept.total == 300
        assert (file is not None and file.exists()) == (INCLUDE in (included or ()))
    assert file is None or not file.exists()
    assert target.asked == [("DiagnosticReport", {"_include": INCLUDE} if file else None)]


def test_results_that_cannot_be_searched_do_not_come_with_the_reports(world: World) -> None:
    """REPORT-01: they are not read, so that what comes would be thrown away."""
    reports = {"type": "DiagnosticReport", "searchInclude": [INCLUDE]}
    found, target = capabilities_of({"rest": [{"resource": [reports]}]}), Including(some_reports(world))
    connection = SimpleNamespace(client=target, capabilities=found)
    session: Any = SimpleNamespace(home=world.home, target=TARGET, connection=connection)
    with reports_swept(session) as (_, file):
        assert file is None
    assert target.asked == [("DiagnosticReport", None)]


@pytest.mark.parametrize("wrong", ["refuses", "counts_all"])
def test_a_target_that_includes_wrongly_is_read_without(wrong: str, world: World) -> None:
    """REPORT-02: what its statement promises holds no sweep up."""
    target = Including(some_reports(world), **{wrong: True})
    assert read_including(world, target) == 600
    assert sum(target.groups) == 601


class FailingWith(Including):
    """A target that fails with `_include` alone, at the page of a number."""

    def __init__(self, resources: list[dict[str, Any]], fails: Exception | str, at: int) -> None:
        super().__init__(resources)
        self.fault, self.at = fails, at

    def pages(self, resource_type: str, params: dict[str, str] | None = None, *_: object) -> Iterator[dict[str, Any]]:
        including = "_include" in (params or {})
        for number, page in enumerate(super().pages(resource_type, params), 1):
            if not including or number != self.at:
                yield page
            elif isinstance(self.fault, Exception):
                raise self.fault
            else:
                yield {**page, "entry": self.fault}


FAULTS: list[Exception | str] = [
    *(
        NotDone(Reply(403)),
        NotDone(Reply(413)),
        UnknownOutcome("HTTP 500"),
        TimedOut("ReadTimeout"),
        NotSent("no connection"),
    ),
    "odd",
]


@pytest.mark.alike
@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_target_that_fails_when_it_includes_is_read_without(fault: Exception | str, at: int, world: World) -> None:
    """REPORT-02: nothing that came before the failure is taken."""
    target = FailingWith(some_reports(world), fault, at)
    assert read_including(world, target) == 600
    assert sum(target.groups) == 601
    assert [params for kind, params in target.asked if kind == "DiagnosticReport"] == [{"_include": INCLUDE}, None]


def test_a_target_that_fails_without_results_too_is_not_asked_a_third_time(world: World) -> None:
    """REPORT-02"""

    class Away(Target):
        def pages(self, resource_type: str, params: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
            yield from ()
            self.asked.append((resource_type, params))
            raise UnknownOutcome("HTTP 500")

    target = Away([])
    with pytest.raises(SweepIncomplete, match="page 1: HTTP 500"):
        read_including(world, target)
    assert [params for _, params in target.asked] == [{"_include": INCLUDE}, None]


@pytest.mark.long
def test_a_result_that_a_report_names_by_version_is_read_as_it_is_now(world: World) -> None:
    """REPORT-01: what comes with the report is the version that it names."""

    class Versioned(Including):
        def pages(
            self, resource_type: str, params: dict[str, str] | None = None, *_: object
        ) -> Iterator[dict[str, Any]]:
            for page in super().pages(resource_type, params):
                old = [{"resource": result("o1", 1), "search": {"mode": "include"}}]
                yield {**page, "entry": page["entry"] + (old if "_include" in (params or {}) else [])}

    named = [{"reference": "Observation/o1/_history/1"}, {"reference": "Observation/o2"}]
    reports, results = [report("r1", result=named), report_of("r2", "o1")], [result("o1", 2), result("o2", 3)]
    for some in (reports[:1], reports):
        target = Versioned([*some, *results])
        assert read_including(world, target) == 2
        assert [params["_id"] for _, params in target.asked if params and "_id" in params] == ["o1"]
        world.published = publish(world.home, world.ledger, kept_sweep(world.home, TARGET))
        assert world.rows("SELECT observation_id, value FROM observation") == [("o1", 2.0), ("o2", 3.0)]


def test_an_odd_result_beside_reports_is_asked_for_by_id(world: World) -> None:
    """REPORT-02"""

    class Odd(Including):
        def pages(
            self, resource_type: str, params: dict[str, str] | None = None, *_: object
        ) -> Iterator[dict[str, Any]]:
            for page in super().pages(resource_type, params):
                odd = [{"resource": {"resourceType": "Observation", "id": "no id of FHIR!"}}]
                yield {**page, "entry": page["entry"] + (odd if resource_type == "DiagnosticReport" else [])}

    target = Odd(some_reports(world))
    assert read_including(world, target) == 600
    assert sum(target.groups) == 601


class Deaf(Target):
    """A target that does not know the parameter `_id`."""

    def pages(self, resource_type: str, params: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
        return super().pages(resource_type)


@pytest.mark.long
def test_a_target_that_answers_with_others_than_asked_for_is_not_believed(world: World) -> None:
    """REPORT-02: the results last read stay."""
    world.reports, world.results = [report_of("r1", "o1")], [result("o1", 1)]
    world.publish()
    with pytest.raises(SweepIncomplete, match="answers a search for Observations by `_id` with others"):
        sweep_results(Deaf([*world.results, result("o2", 2)]), world.home, TARGET)
    world.results = []
    world.publish()
    assert world.rows("SELECT value FROM observation") == [(1.0,)]
