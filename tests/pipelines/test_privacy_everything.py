"""With everything switched on, a marker of each kind is where docs/security.md says, and nowhere else.

Files are imported with traces and copies of the tables, over a home that publishes free text and patients: by the
command beside a service, or by `chartferry up` with lineage and alerts by a webhook. A listener keeps what is sent.
Then every command that makes tables, pages or files runs beside it.
"""

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra `traces` is not installed")
pytest.importorskip("openlineage.client", reason="the extra `lineage` is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from pipelines.cli import run
from tests.support import loopback
from tests.support.called import called
from tests.support.commands import command, environment, forget_settings, listening
from tests.support.listening import Heard, listener
from tests.support.marked import FILES, KINDS, drop, lay_out
from tests.support.standing import Standing, published, standing, until
from tests.support.starting import finish
from tests.support.told import errors_to, everything_said

WAIT = 600
"""Seconds for what takes two minutes on a machine that is shared."""
LINEAGE = "/api/v1/lineage"


@dataclass
class Everything:
    """A home after all of it: its copies of tables, what was heard, and what commands said. up: by `chartferry up`."""

    home: Path
    copies: Path
    heard: Heard
    up: bool
    said: dict[str, str] = field(default_factory=dict)

    @property
    def switches(self) -> dict[str, str]:
        """The environment that switches everything on."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.heard.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "OPENLINEAGE_URL": self.heard.url,
            "CHARTFERRY_ALERT_WEBHOOK": f"{self.heard.url}/alert",
            "CHARTFERRY_COPIES": str(self.copies),
        }

    def tell(self, name: str, *words: object) -> None:
        """Run a command, and keep what it says."""
        self.tell_of(command(name, *words), *words)

    def import_unpublished(self) -> None:
        """Import in a process of its own that publishes no tables: `reports` makes them once."""
        words = ("--home", self.home, "import")
        self.tell_of([sys.executable, "-m", "tests.support.unpublished", *map(str, words)], *words)

    def tell_of(self, started: list[str], *words: object) -> None:
        done = finish(started, env=environment(**self.switches), timeout=300)
        assert "Traceback" not in done.stdout + done.stderr
        self.said[" ".join(map(str, words))] = done.stdout + done.stderr

    def tell_here(self, *words: object) -> None:
        """Run a command in this process, where its traces would begin for all others too: it sends none."""
        said, errors = io.StringIO(), self.home.parent / "stderr.log"
        with pytest.MonkeyPatch.context() as patch, everything_said(said), errors_to(errors):
            forget_settings(patch)
            for name, value in self.switches.items():
                if not name.startswith("OTEL_"):
                    patch.setenv(name, value)
            run(["--home", str(self.home), *map(str, words)])
        told = said.getvalue() + errors.read_text(errors="replace")
        assert "Traceback" not in told
        self.said[" ".join(map(str, ("--home", self.home, *words)))] = told

    def audit(self) -> None:
        """Ask the service's own commands what was done."""
        for words in ("audit", "audit --format auditevent", "audit verify", "check"):
            done = called(*words.split(), "--store", self.home / "service.duckdb")
            assert done.exception is None or isinstance(done.exception, SystemExit)
            self.said[words] = done.output


COMMANDS = """status
doubts
verify
metrics
target
feeds check
reports --pseudonymous
reports --bulk https://data.example/bulk
import --dry-run
rehearse {again}
views run {home}/views/reading.view.json --out {home}/batches/reading.csv
rejects export --out {home}/batches/export
undo {undone} --dry-run"""
LAST = {
    True: "evidence --seed 1\nundo {undone}\nimport --again {undone}",
    False: "reports",
}
"""By whether it is beside `chartferry up`: test_privacy.py runs the commands that `make test` leaves out here."""


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["by command", "up"])
def everything(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    home, copies = tmp_path_factory.mktemp("everything") / "home", tmp_path_factory.mktemp("copies") / "tables"
    lay_out(home)
    with listener() as heard:
        made = Everything(home, copies, heard, request.param)
        with by_up(made) if made.up else by_command(made) as service:
            run_commands(made)
            made.said["figures"] = loopback.get(f"{service}/metrics").text
        made.audit()
        yield made


@contextmanager
def by_up(made: Everything) -> Iterator[str]:
    """Import the files by `chartferry up`; yield the address of its service."""
    with standing(made.home, **made.switches) as up:
        drop(made.home)
        until(lambda: published_whole(made.home) and up.nothing_under_way(), "the tables of it all", WAIT, 2)
        until(lambda: made.heard.of("/alert"), "alerts", WAIT)
        until(lambda: b"reports/task_note" in b"".join(made.heard.of(LINEAGE)), "lineage", WAIT)
        made.said["pages"] = pages(up)
        yield up.addresses["service"]


@contextmanager
def by_command(made: Everything) -> Iterator[str]:
    """Import the files by the command beside a service; yield its address."""
    made.tell("fhir-service", "load", "--store", made.home / "service.duckdb", made.home / "reference")
    drop(made.home)
    with listening(made.home, **made.switches) as url:
        made.import_unpublished()
        yield url


def run_commands(made: Everything) -> None:
    """Run every command that makes or shows something."""
    batches = sorted(path.name for path in (made.home / "batches").glob("*-*"))
    undone = next(name for name in batches if name.startswith("tasks-"))
    again = made.home / "batches" / "again"
    again.mkdir()
    for name, text in FILES.items():
        (again / name).write_text(text)
    lines = [*COMMANDS.splitlines(), *LAST[made.up].splitlines()]
    for words in (line.format(home=made.home, undone=undone, again=again).split() for line in lines):
        if made.up or words[0] == "rejects":  # one of them tells its traces too
            made.tell("chartferry", "--home", made.home, *words)
        else:
            made.tell_here(*words)
    for batch in batches if made.up else batches[::3]:
        made.tell_here("status", batch)


def published_whole(home: Path) -> bool:
    return (home / "published" / "reports.duckdb").exists() and published(home).total() == len(FILES)


def pages(up: Standing) -> str:
    """Return what Dagster's pages show of every run: tags and events."""
    return json.dumps([(run, up.messages(run["runId"])) for run in up.runs()])


def kinds_in(content: bytes) -> set[str]:
    return {kind for kind, pattern in KINDS.items() if re.search(pattern, content)}


def kinds_of(path: Path) -> set[str]:
    """The kinds of data in a file; of a table what its cells show, since the file is compressed."""
    if path.suffix == ".parquet":
        return kinds_in(str(duckdb.read_parquet(str(path)).fetchall()).encode())
    return kinds_in(path.read_bytes())


ALL = set(KINDS)
PLACES = {
    r"(inbox|batches|feeds|reference|bulk-publish)/.*|service\.duckdb(\.wal|\.ahead)?": ALL,
    r"published/.*\.(parquet|duckdb)": {"key", "text", "comment", "amount", "birth date", "name"},
    r"pseudonymous/.*\.(parquet|duckdb)": {"amount"},
    r"ledger\.db.*|journal.*": {"key", "number", "amount"},
    r"evidence/.*": {"key", "amount"},
    r"rehearsals/.*": {"key", "number", "amount"},
}
"""What may be in which files of a home, as docs/security.md says."""


def allowed(name: str) -> set[str]:
    return next((kinds for place, kinds in PLACES.items() if re.fullmatch(place, name)), set())


def files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def traces(heard: Heard) -> dict[bytes, set[str]]:
    """The names of the spans of each trace, of the import and of the service."""
    found: dict[bytes, set[str]] = {}
    for body in heard.of("/v1/traces"):
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for spans in resource.scope_spans:
                for span in spans.spans:
                    found.setdefault(span.trace_id, set()).add(span.name)
    return found


def test_everything_is_switched_on_and_the_markers_came_through(everything: Everything) -> None:
    """The searches below have something to find."""
    home, heard = everything.home, everything.heard
    assert any({"receive", "validate", "load", "POST", "commit"} <= spans for spans in traces(heard).values())
    if everything.up:
        assert "batch_failed" in {json.loads(body)["event"] for body in heard.of("/alert")}
        lineage = b"".join(heard.of(LINEAGE))
        assert all(name in lineage for name in (b"payments/loaded", b"reports/task", b"every_record_was_taken"))
    for folder in ("published", "pseudonymous", "bulk-publish", *["evidence"] * everything.up, "rehearsals"):
        assert (home / folder).is_dir(), folder
    assert (home / "metrics.prom").exists()
    assert kinds_in(b"".join(path.read_bytes() for path in home.glob("service.duckdb*"))) >= ALL - {"amount"}
    shown = set[str]().union(*map(kinds_of, (home / "published" / "parquet").iterdir()))
    assert shown == {"key", "text", "comment", "amount", "birth date", "name"}
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as db:
        states = dict(db.sql("SELECT state, count(*) FROM import_row GROUP BY 1").fetchall())
        assert db.sql("SELECT count(*) FROM patient").fetchall() == [(2,)]
        stages = {stage for (stage,) in db.sql("SELECT stage FROM reject").fetchall()}
    assert states.keys() >= {"created", "refused"}
    assert stages >= {"map", "rule", "load"}


def test_no_personal_data_is_printed_or_sent(everything: Everything) -> None:
    """REPORT-25: traces, lineage, alerts, events, metrics, the audit, and what commands print."""
    found = {path: kinds for path, body in everything.heard.bodies if (kinds := kinds_in(body))}
    said = {words: kinds for words, text in everything.said.items() if (kinds := kinds_in(text.encode()))}
    assert found == {}
    assert {words.split()[2]: kinds for words, kinds in said.items()} == {"rehearse": {"key"}}


def test_nothing_of_a_person_is_in_a_file_that_is_not_for_it(everything: Everything) -> None:
    """REPORT-25"""
    found = {name: kinds for name, path in files(everything.home).items() if (kinds := kinds_of(path) - allowed(name))}
    assert found == {}


KEPT = {"text", "name", "birth date"}
TABLES = {
    **dict.fromkeys(("answer", "questionnaire_response_item", "response_intake", "task_at_target"), KEPT),
    **{name: {"key"} for name in ("questionnaire_response", "reject", "task")},
    **{name: {"key", "amount"} for name in ("import_row", "payment")},
    "payment_at_target": {"amount"},
    "observation": {"text"},
    "reading": {"text"},
    "task_note": {"comment"},
}
"""What published tables hold where the home publishes free text: each answer's and description's own words too."""


def test_each_kind_is_in_the_tables_that_are_for_it(everything: Everything) -> None:
    """REPORT-25: and copies hold what the published folder holds."""
    found = {
        path.stem: kinds
        for path in sorted((everything.home / "published" / "parquet").iterdir())
        if (kinds := kinds_of(path))
    }
    assert found == TABLES
    assert kinds_of(everything.home / "published" / "report.html") == set()
    copied = {path.name for path in everything.copies.rglob("*.parquet")}
    assert copied
    assert all(kinds_of(path) <= found.get(path.stem, set()) for path in everything.copies.rglob("*.parquet"))
