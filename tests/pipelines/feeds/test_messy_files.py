"""Messy files of the world, each as an export: records, rejects, or one clear sentence. Never a traceback or a hang.

Where they lie, and that the tests are skipped without them, is said in `tests/support/realdata.py`.
"""

import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fhir_service.interface.site import Site
from pipelines.feeds.drafting.draft import draft
from pipelines.feeds.files.catalog import Feed, load_feed, load_feeds
from pipelines.home.batch import UnreadableFile
from pipelines.receiving.stage import receive
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.stage import validate
from tests.support.realdata import MISSING, REALDATA

SETS = ("messy_csv", "messy_json", "messy_text", "synthea_csv", "practice/inbox", "tasks_payments")
NOW = datetime(2024, 6, 1, tzinfo=UTC)
LONGEST = 30.0
pytestmark = pytest.mark.skipif(not REALDATA.is_dir(), reason=MISSING)

ANY_CSV = """
kind = "payments"
files = "*.csv*"
format = "csv"
header = 0
delimiter = "DELIMITER"
[columns]
payment_id = 1
patient_id = { first = [2, 1] }
amount = { constant = "1.00" }
paid_on = { constant = "2024-05-01" }
"""
ANY_TASK = """
kind = "tasks"
files = "*.csv*"
encoding = "ENCODING"
[columns]
task_id = 1
description = 1
status = { constant = "requested" }
requester_id = { constant = "d1" }
"""


def files() -> Iterator[Path]:
    for name in SETS:
        yield from (path for path in sorted((REALDATA / name).rglob("*")) if path.is_file())


def feeds(folder: Path) -> dict[str, Feed]:
    """Feeds that take any file: of payments and tasks, by position, with and without header, and the built-in ones."""
    texts = {f"csv {sign!r}": ANY_CSV.replace("DELIMITER", sign) for sign in (",", ";", "|", "\\t")}
    texts |= {f"task {name}": ANY_TASK.replace("ENCODING", name) for name in ("utf-8", "latin-1", "utf-16")}
    texts["lenient"] = 'quote = ""\n' + ANY_CSV.replace("DELIMITER", ",")
    found = {}
    for number, (name, text) in enumerate(texts.items()):
        (folder / f"feed{number}.toml").write_text(text)
        found[name] = load_feed(folder / f"feed{number}.toml")
    builtin = load_feeds()
    for name in ("payments", "answers", "tasks"):
        feed = builtin.named(name)
        assert feed
        found[name] = feed
    return found


def tried(path: Path, name: str, feed: Feed, folder: Path) -> ValidationResult | str:
    """The file taken in under this name: what became of it, or the sentence that says why nothing did."""
    inbox = folder / "in"
    inbox.mkdir(parents=True)
    (inbox / name).write_bytes(path.read_bytes())
    try:
        received = receive(inbox / name, feed, folder / "home", NOW)
        return validate(received, feed, Snapshot(), Site(), folder / "run")
    except UnreadableFile as error:
        return str(error)


def assert_accounted_for(found: ValidationResult) -> None:
    lines = 0
    for name, number in (
        ("accepted", found.accepted - found.skipped),
        ("rejects", found.rejected),
        ("skipped", found.skipped),
    ):
        table = pq.read_table(found.folder / f"{name}.parquet")
        assert len(table) == number
        lines += sum(table["lines"].to_pylist())
    assert found.lines == found.header + found.not_taken + lines
    for reasons in pq.read_table(found.folder / "rejects.parquet")["reasons"].to_pylist():
        assert reasons
        assert all(reason["rule_id"] and reason["message"] for reason in reasons)


QUICK = ("csv ','", "lenient", "task utf-8", "payments", "answers", "tasks")
"""One feed of each form; the others differ in delimiter and encoding."""


def fits(label: str, form: str, path: Path) -> bool:
    """JSON goes to the built-in feeds as NDJSON, all else to every feed as CSV."""
    json = path.name.removesuffix(".gz").endswith(("json", ".ndjson", ".jsonl"))
    return (form == "ndjson") == json and (form == "csv" or label in ("payments", "answers", "tasks"))


def ends_of(form: str, labels: Sequence[str] | None, folder: Path, every: int = 1) -> Counter[str]:
    """How the files, or one of every so many, end as exports of a form."""
    ends: Counter[str] = Counter()
    given = feeds(folder)
    cases = [(path, label) for path in files() for label in labels or given if fits(label, form, path)]
    for number, (path, label) in enumerate(cases[::every]):
        name = f"any.{form}{'.gz' if path.suffix == '.gz' else ''}"
        began = time.monotonic()
        found = tried(path, name, given[label], folder / str(number))
        assert time.monotonic() - began < LONGEST, (path, label)
        if isinstance(found, str):
            ends["sentence"] += 1
            assert found.startswith(f"{name}: "), (path, label, found)
            assert len(found) < 400
            assert "\n" not in found
        else:
            assert_accounted_for(found)
            ends.update(accepted=found.accepted, rejected=found.rejected)
    return ends


@pytest.mark.parametrize("every", [41, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_every_messy_file_ends_as_records_rejects_or_one_sentence(form: str, every: int, tmp_path: Path) -> None:
    """FEED-FILE-02, FEED-FILE-04, FEED-FILE-09: no traceback, no hang, every line accounted for."""
    ends = ends_of(form, QUICK, tmp_path, every)
    assert ends["sentence"]
    assert ends["rejected"]


@pytest.mark.long
def test_every_messy_file_ends_so_in_every_delimiter_and_encoding(tmp_path: Path) -> None:
    """FEED-FILE-02, FEED-FILE-08, FEED-FILE-09."""
    assert ends_of("csv", None, tmp_path)["accepted"]


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.long)])
def test_every_messy_file_has_a_draft_or_one_sentence(every: int) -> None:
    """FEED-FILE-08."""
    for path in list(files())[::every]:
        found = drafted(path)
        assert found.startswith((f"{path.name}: ", "# Drafted")), path
        assert not found.startswith("#") or tomllib.loads(found)["kind"] in ("payments", "answers", "tasks")


def drafted(path: Path) -> str:
    """Return the draft, or the sentence that refuses one."""
    try:
        return draft(path)
    except UnreadableFile as error:
        return str(error)
