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
from typing import Any

import duckdb
import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra `traces` is not installed")
pytest.importorskip("openlineage.client", reason="the extra `lineage` is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from pipelines.cli import run
from tests.support import loopback
from tests.support.called import called
from tests.support.clinic_feed import lay_clinic
from tests.support.commands import command, environment, forget_settings, listening
from tests.support.listening import Heard, listener
from tests.support.standing import Standing, published, standing, until
from tests.support.starting import finish
from tests.support.told import errors_to, everything_said

WAIT = 600
"""Seconds for what takes two minutes on a machine that is shared."""
LINEAGE = "/api/v1/lineage"
BIRTH, AMOUNT = "1931-07-09", "7654321.{:02}"
KINDS = {
    "name": rb"QznameZq",
    "number": rb"QznumberZq",
    "text": rb"QztextZq",
    "comment": rb"QzcommentZq",
    "key": rb"QzkeyZq",
    "birth date": rb"1931\D?07\D?09|0?9\D0?7\D1931",
    "amount": rb"7[,']?654[,']?321\D?[0-9][0-9]",
}
"""What marks each kind of a person's data. `number` is a person's in another system, `key` the source's of a record."""

NAME, NUMBER, TEXT, COMMENT, KEY = ("QznameZq", "QznumberZq", "QztextZq", "QzcommentZq", "QzkeyZq")
WORDS = {"family": NAME, "given": [NAME], "text": NAME}
DIV = {"status": "generated", "div": f"<div xmlns='http://www.w3.org/1999/xhtml'>{TEXT}</div>"}
LOINC = "http://loinc.org"
CODE = {"coding": [{"system": LOINC, "code": "4548-4", "display": "HbA1c"}]}


def patient(number: int) -> dict[str, Any]:
    about = {"resourceType": "Patient", "id": f"p{number}", "name": [WORDS], "birthDate": BIRTH, "gender": "female"}
    ways = {"telecom": [{"system": "phone", "value": NAME}], "address": [{"line": [NAME]}]}
    return about | ways | {"identifier": [{"system": "urn:mrn", "value": NUMBER}], "text": DIV}


def option(code: str) -> dict[str, Any]:
    return {"valueCoding": {"system": LOINC, "code": code, "display": f"option {code}"}}


VALUES: tuple[dict[str, Any], ...] = (
    {"valueString": TEXT},
    {"valueQuantity": {"value": 7.1, "unit": "%"}},
    {"valueDateTime": BIRTH},
)
INSURANCE = {"sequence": 1, "focal": True, "coverage": {"display": "self-pay"}}
PATIENT, DOCTOR = {"reference": "Patient/p1"}, {"reference": "Practitioner/d1"}
REFERENCE: list[dict[str, Any]] = [
    *(patient(number) for number in (1, 2)),
    {"resourceType": "Practitioner", "id": "d1", "name": [{"family": "Staff"}]},
    {"resourceType": "Group", "id": "g1", "name": "Front desk", "type": "practitioner", "actual": True},
    *(
        {"resourceType": "Claim", "id": f"c{number}", "status": "active", "patient": PATIENT, "created": "2026-01-01"}
        | {"type": {"coding": [{"code": "professional"}]}, "use": "claim", "provider": DOCTOR}
        | {"priority": {"coding": [{"code": "normal"}]}, "insurance": [INSURANCE]}
        | {"total": {"value": 9_000_000 + number, "currency": "USD"}}
        for number in (1, 2, 3)
    ),
    {
        "resourceType": "Questionnaire",
        "id": "q1",
        "name": "intake",
        "status": "active",
        "code": [{"system": LOINC, "code": "55757-9"}],
        "item": [
            {"linkId": "story", "text": "Tell us", "type": "text"},
            {"linkId": "mood", "text": "Mood?", "type": "choice", "answerOption": [option("fine"), option("low")]},
            {"linkId": "born", "text": "Born?", "type": "text"},
        ],
    },
    *(
        {"resourceType": "Observation", "id": f"o{number}", "status": "final", "code": CODE, "subject": PATIENT}
        | {"effectiveDateTime": "2026-02-01", "text": DIV, "note": [{"text": TEXT}]}
        | value
        for number, value in enumerate(VALUES, 1)
    ),
    *(
        {"resourceType": "DiagnosticReport", "id": f"r{number}", "status": "final", "code": CODE, "subject": PATIENT}
        | {"category": [{"coding": [{"system": LOINC, "code": "LP29684-5"}]}], "conclusion": TEXT, "text": DIV}
        | {"effectiveDateTime": "2026-02-01", "issued": "2026-02-02T00:00:00Z", "performer": [DOCTOR]}
        | {"result": [{"reference": f"Observation/o{each}"} for each in (1, 2, 3)]}
        for number in (1, 2)
    ),
    {**patient(1), "id": f"not an id {NUMBER}"},
]
TASKS = "task_id,patient_id,description,status,requester_id,owner_id,due,labels,comment,comment_author_id,comment_time"
ANSWERS = "response_id,patient_id,questionnaire,authored,author,question,answer_code,answer_text,answer_number"
PAYMENTS = "payment_id,patient_id,amount,paid_on,claim_id"


def payment(number: int, patient_id: str = "p1", more: str = "") -> str:
    return f"{KEY}y{number},{patient_id},{AMOUNT.format(number)}{more},2026-01-03,\n"


FILES = {
    "clinic-1.csv": "ID,MRN,WHAT,DONE,BY\n"
    f"{KEY}1,{NUMBER},{TEXT},Y,d1\n{KEY}2,{NUMBER}unknown,{TEXT},Y,d1\n{KEY}3,{NUMBER},{TEXT},{TEXT},d1\n",
    "tasks-1.csv": f"{TASKS}\n"
    f"{KEY}t1,p1,{TEXT} {NAME} {BIRTH},requested,d1,d1,2026-05-01,front,{COMMENT},d1,2026-01-01T00:00:00Z\n"
    f"{KEY}t2,p1,{TEXT}\x01,requested,d1,,,,{COMMENT},,\n"
    f"{KEY}t3,{NUMBER},{TEXT},requested,d1,,,,,,\n",
    "answers-1.csv": f"{ANSWERS}\n"
    f"{KEY}a1,p1,intake,2026-01-02,,story,,{TEXT} {NAME},\n{KEY}a1,p1,intake,2026-01-02,,mood,fine,,\n"
    f"{KEY}a1,p1,intake,2026-01-02,,born,,{BIRTH},\n{KEY}a2,p1,intake,2026-01-02,,mood,none,,\n"
    f"{KEY}a3,p1,intake,2026-01-02,,{TEXT},,{TEXT},\n",
    "payments-1.csv": f"{PAYMENTS}\n"
    + "".join(payment(number) for number in (1, 2))
    + "".join(payment(number, "p2") for number in (3, 4))
    + "".join(payment(number, more="7") for number in (5, 6))
    + "".join(payment(number, NUMBER) for number in (7, 8)),
    "payments-2.csv": f"{TEXT},{NUMBER}\n{AMOUNT.format(9)},{BIRTH}\n",
    "payments-3.csv.gz": f"no gzip {TEXT}",
}
VIEW = {
    "resourceType": "ViewDefinition",
    "name": "reading",
    "resource": "Observation",
    "select": [
        {
            "column": [
                {"name": "id", "path": "id", "type": "id"},
                {"name": "value", "path": "value.ofType(string)", "type": "string"}
                | {"tag": [{"name": "chartferry/free-text", "value": "true"}]},
            ]
        }
    ],
}


def lay_out(home: Path) -> None:
    for folder in ("inbox", "feeds", "views", "reference"):
        (home / folder).mkdir(parents=True, mode=0o700)
    (home / "reference" / "all.ndjson").write_text("".join(f"{json.dumps(each)}\n" for each in REFERENCE))
    lay_clinic(home / "feeds", f"MRN,NAME,FHIR\n{NUMBER},{NAME},p1\n")
    (home / "views" / "reading.view.json").write_text(json.dumps(VIEW))
    (home / "reports.toml").write_text("publish_free_text = true\npublish_patients = true\n")


def drop(home: Path) -> None:
    for name, text in FILES.items():
        (home / "inbox" / f".{name}").write_text(text)
        (home / "inbox" / f".{name}").rename(home / "inbox" / name)


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
    """What Dagster's pages show of every run: its tags and its events."""
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


def test_nothing_of_a_person_is_said_or_sent(everything: Everything) -> None:
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
