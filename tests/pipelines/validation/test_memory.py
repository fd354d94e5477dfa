"""Memory does not grow with the file: large messy exports and one giant row, each validated by a process of its own."""

import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fhir_service.interface.site import Site
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.batch import ReceivedFile, UnreadableFile
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.stage import validate

MB = 1 << 20
HEADER = b"payment_id,patient_id,amount,paid_on,claim_id,memo\n"
MEMO = b"a memo of the clerk; " * 300
NDJSON = b'{"payment_id": "k%d", "patient_id": "p%d", "amount": "1.00", "paid_on": "2026-03-01", "memo": "%s"}\n'


def bad_rows(number: int) -> bytes:
    """A ragged row, a refund, a row with bytes of another encoding, and one without a patient."""
    key = b"%d" % number
    return (
        b"r%b,p1,1.00\n" % key
        + b"n%b,p1,-5.00,2026-03-01,,\n" % key
        + b"b%b,p1,1.00,2026-03-01,,Br\xfccke\n" % key
        + b"o%b,,1.00,2026-03-01,,\n" % key
    )


def csv_rows(number: int) -> bytes:
    """A good row, one with a quoted line break, and bad ones."""
    key = b"%d" % number
    good = b"g%b,p%b,1.00,2026-03-01,,%b\n" % (key, key[-2:], MEMO)
    return good + b'q%b,p1,1.00,2026-03-01,,"%b\n%b"\n' % (key, MEMO, MEMO) + bad_rows(number)


def ndjson_rows(number: int) -> bytes:
    """A good object, one cut off, and one with a name twice."""
    good = NDJSON % (number, number % 90, MEMO)
    return good + b'{"payment_id": "c%d", "pat\n' % number + b'{"payment_id": "a", "payment_id": "b"}\n'


def a_quote_that_is_never_closed() -> Iterator[bytes]:
    yield HEADER + b'k1,p1,"1.00,2026-03-01,,\n'
    for number in range(1 << 30):
        yield b"k%d,p1,1.00,2026-03-01,,%b\n" % (number, MEMO)


def one_endless_line() -> Iterator[bytes]:
    yield HEADER
    while True:
        yield b"x" * 65_536


def one_json_document() -> Iterator[bytes]:
    yield b"[\n"
    while True:
        yield b'  {\n    "payment_id": "k1"\n  },\n' * 1_000


def one_json_document_on_a_line() -> Iterator[bytes]:
    yield b"["
    while True:
        yield b'{"payment_id": "k1"},' * 3_000


def written(path: Path, size: int, parts: Iterator[bytes], head: bytes = b"") -> Path:
    """A file of at least this many bytes."""
    with path.open("wb") as out:
        out.write(head)
        while out.tell() < size:
            out.write(next(parts))
    return path


def peak(path: Path) -> tuple[float, float, str]:
    """MB that a process had at most that validated the file, how many of them before, and what became of the file."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipelines.validation.test_memory", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    size, before, said = done.stdout.split(" ", 2)
    return float(size), float(before), said.strip()


def of_rows(rows: Callable[[int], bytes]) -> Iterator[bytes]:
    return (rows(number) for number in range(1 << 30))


@pytest.mark.long
@pytest.mark.parametrize(("name", "rows", "head"), [("p.csv", csv_rows, HEADER), ("p.ndjson", ndjson_rows, b"")])
def test_ten_times_the_file_is_not_ten_times_the_memory(name, rows, head, tmp_path):
    """FEED-FILE-02, FEED-FILE-04, FEED-FILE-09"""
    (tmp_path / "small").mkdir()
    small, _, said = peak(written(tmp_path / "small" / name, 20 * MB, of_rows(rows), head))
    large, _, more = peak(written(tmp_path / name, 200 * MB, of_rows(rows), head))
    assert int(more.split()[0]) > 9 * int(said.split()[0]) > 0
    assert large < small + 150


@pytest.mark.parametrize("most", [MB // 8, pytest.param(MB, marks=pytest.mark.long)])
def test_a_file_of_bad_rows_alone_needs_no_more_than_another(most, tmp_path):
    """FEED-FILE-09"""
    size, before, found = peak(written(tmp_path / "p.csv", most, of_rows(bad_rows), HEADER))
    assert found.startswith("0 accepted, ")
    assert size < before + 100


AN_ARRAY = (
    'p.ndjson: the file is a JSON array; set format = "json" in the feed file, or export the rows as NDJSON or CSV'
)


@pytest.mark.alike
@pytest.mark.parametrize(
    ("name", "parts", "said"),
    [
        ("p.csv", a_quote_that_is_never_closed, "3315 accepted, 1 rejected"),
        ("p.csv", one_endless_line, "p.csv: line 2 is longer than 2 MiB; check that it is the right file"),
        pytest.param("p.ndjson", one_json_document, AN_ARRAY, marks=pytest.mark.long),
        (
            "p.ndjson",
            one_json_document_on_a_line,
            AN_ARRAY,
        ),
    ],
)
def test_a_file_without_rows_ends_with_one_sentence_in_little_memory(name, parts, said, tmp_path):
    """FEED-FILE-02, FEED-FILE-04: even a large one."""
    size, _, found = peak(written(tmp_path / name, 20 * MB, parts()))
    assert found == said
    assert size < 450


def most_memory() -> int:
    """Bytes at the most. `ru_maxrss` of Linux begins with what the process that started this one had in use."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"), re.MULTILINE)
    return int(kilobytes) << 10


def main(path: Path) -> None:
    feed = load_feeds().match(f"payments{path.suffix}")
    assert feed
    received = ReceivedFile("b", "0" * 64, path, path.name, path.stat().st_size, datetime.now(UTC))
    before = most_memory() / MB
    try:
        found = validate(received, feed, Snapshot(), Site(), path.parent / "run", processes=1)
        said = f"{found.accepted} accepted, {found.rejected} rejected"
    except UnreadableFile as error:
        said = str(error)
    print(most_memory() / MB, before, said)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
