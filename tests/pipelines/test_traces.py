"""One trace leads from the file to the commit of its records, and holds no personal value."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fhir_service.web import traces as of_service
from pipelines.cli import run as chartferry
from pipelines.client.replies import NotSent
from pipelines.dagster.run_resource import RunWorkplace
from pipelines.dagster.stages.receiving import receive_at
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home import traces
from tests.conftest import running
from tests.support.commands import forget_settings
from tests.support.publishing import publish_nothing

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra `traces` is not installed")

MARK = "Qztext"
ROWS = (
    "task_id,patient_id,description,status,requester_id\n"
    f"{MARK}key,p1,{MARK} described,requested,dr1\n"
    f"{MARK}odd,p1,{MARK} described,{MARK}status,dr1\n"
    f"{MARK}away,{MARK}patient,{MARK} described,requested,dr1\n"
)


Spans = Callable[[], Sequence[Any]]


@pytest.fixture
def spans() -> Iterator[Spans]:
    """The spans of the import and of a service in this process, in the order in which they ended."""
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider(id_generator=traces.ids())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces.use(provider)
    of_service.use(provider)
    yield exporter.get_finished_spans
    traces.use(None)
    of_service.use(None)


def test_a_run_under_dagster_traces_from_its_first_stage_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are received without a session at the target, which begins the traces of commands."""
    started: list[object] = []
    monkeypatch.setattr(traces, "start", started.append)
    place = RunWorkplace(tmp_path, {traces.ENDPOINT: "http://127.0.0.1:4318"})
    receive_at(place, load_feeds().feeds[0], [], logging.getLogger())
    assert started == [place.environ]


def test_a_batch_is_one_trace_from_its_file_to_the_commit_without_a_value(
    tmp_path: Path,
    spans: Spans,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_settings(monkeypatch)
    publish_nothing(monkeypatch)
    inbox = tmp_path / "home" / "inbox"
    inbox.mkdir(parents=True)
    (inbox / "tasks-1.csv").write_text(ROWS)
    with running(tmp_path) as target:
        client = target.service.auth.add_client("import", "system/*.cruds")
        monkeypatch.setenv("FHIR_BASE_URL", target.url)
        monkeypatch.setenv("FHIR_CLIENT_ID", client["client_id"])
        monkeypatch.setenv("FHIR_CLIENT_SECRET", client["client_secret"])
        assert chartferry(["--home", str(tmp_path / "home"), "import"]) == 3
        kept = target.client.get("/Task").text
    found = spans()
    stages = {span.name: span for span in found if span.name in ("receive", "validate", "load")}
    assert list(stages) == ["receive", "validate", "load"]
    assert len({span.context.trace_id for span in stages.values()}) == 1
    trace = stages["load"].context.trace_id
    by_id = {span.context.span_id: span for span in found}
    commits = [span for span in found if span.name == "commit" and span.context.trace_id == trace]
    assert commits
    for commit in commits:
        served = by_id[commit.parent.span_id]
        sent = by_id[served.parent.span_id]
        assert served.attributes["http.response.status_code"] in (200, 201)
        assert (sent.name, by_id[sent.parent.span_id].name) == ("POST", "load")
    assert sum(commit.attributes["fhir.entries"] for commit in commits) >= 2
    assert "Task" in kept
    assert re.findall(rf"{MARK}\w*|\bp1\b", " ".join(span.to_json() for span in found)) == []


def test_an_error_is_its_class_alone_and_nothing_is_made_outside_a_stage(spans: Spans) -> None:
    with pytest.raises(NotSent), traces.stage("load", "tasks-1", feed="tasks"), traces.request("POST"):
        raise NotSent(f"{MARK} in the text")
    with traces.request("GET") as headers:
        assert headers == {}
    assert [(span.name, span.attributes["error.type"]) for span in spans()] == [
        ("POST", "NotSent"),
        ("load", "NotSent"),
    ]
    assert MARK not in " ".join(span.to_json() for span in spans())


def test_without_a_collector_nothing_is_made_and_no_header_is_sent() -> None:
    assert traces.start({}) is None
    assert of_service.start({}) is None
    with traces.stage("load", "tasks-1"), traces.request("POST") as headers, of_service.commit(1):
        assert headers == {}
    assert of_service.begin_span("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") is None
