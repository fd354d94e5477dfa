"""Compressed exports: read like what is in them, within bounds, and refused with one sentence where they are odd."""

import gzip
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.feeds.drafting.draft import draft
from pipelines.feeds.files.catalog import load_feeds
from pipelines.feeds.reading import packed
from pipelines.feeds.reading.packed import contents, first_content
from pipelines.feeds.reading.reject_marks import ids_in, marked_form
from pipelines.home.batch import UnreadableFile
from tests.support.archives import zipped
from tests.support.quotes import MARK, payment
from tests.support.validating import PAYMENTS, accepted, rejected, validated

ROWS = PAYMENTS + payment("a") + payment("b", "x") + payment("c")


def zstandard(content: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(content)
    return bytes(out.getvalue())


PASSED_OVER = b"\x5a\x2a\x4d\x18\x05\0\0\0about"
"""A frame of Zstandard that holds no content, as parallel packers write before each of theirs."""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("payments.csv.zst", zstandard(ROWS.encode())),
        ("payments.csv.zst", PASSED_OVER + zstandard(ROWS[:60].encode()) + PASSED_OVER + zstandard(ROWS[60:].encode())),
        ("payments.csv.zip", zipped({"payments.csv": ROWS})),
        ("payments-may.zip", zipped({"__MACOSX/._x.csv": "?", ".hidden": "?", "folder/": "", "folder/x.csv": ROWS})),
        ("payments.csv", zipped({"x.csv": ROWS}, zipfile.ZIP_STORED)),
    ],
)
def test_a_compressed_file_reads_like_its_content(name: str, content: bytes, tmp_path: Path) -> None:
    """FEED-FILE-01: lines are those of the file inside."""
    found = validated(content, tmp_path, name)
    assert accepted(found) == [(2, "a"), (4, "c")]
    ((line, _, message),) = rejected(found)
    assert line == 3
    assert message.startswith("not a plain decimal amount")
    assert found.warnings == {}


def test_a_file_in_any_folder_of_a_zip_is_read(tmp_path: Path) -> None:
    """Files below a folder whose name begins with a dot used to be ignored without a message."""
    head = ROWS.splitlines()[0] + "\n"
    more = [head + row + "\n" for row in ROWS.splitlines()[1:]]
    files = {"payments-1.csv": more[0], ".may/payments-2.csv": more[1], "../payments-3.csv": more[2]}
    found = validated(zipped(files), tmp_path, "payments.zip")
    assert {key for _, key in accepted(found)} == {"a", "c"}
    assert len(rejected(found)) == 1


def test_a_zip_takes_objects_by_the_name_of_the_file_inside(tmp_path: Path) -> None:
    """FEED-FILE-01"""
    row = '{"payment_id": "a", "patient_id": "p1", "amount": "1.00", "paid_on": "2024-01-01"}\n'
    assert accepted(validated(zipped({"x.ndjson": row}), tmp_path, "payments.zip")) == [(1, "a")]


def test_the_files_of_a_zip_are_one_batch_and_rejects_name_file_and_line(tmp_path: Path) -> None:
    """FEED-FILE-09: lines run on, each reason says the file and its line in it."""
    second = PAYMENTS + payment("d") + payment("a", "2.00") + payment("e", "x")
    content = zipped({"payments-2.csv": second, "payments-1.csv": ROWS, "readme.txt": "hello"})
    found = validated(content, tmp_path, "payments.zip")
    assert accepted(found) == [(4, "c"), (6, "d")]
    assert (found.lines, found.header, found.rows) == (8, 2, 6)
    assert {line: message.partition(": ")[0] for line, _, message in rejected(found)} == {
        2: "payments-1.csv, line 2",
        3: "payments-1.csv, line 3",
        7: "payments-2.csv, line 3",
        8: "payments-2.csv, line 4",
    }
    twice = next(message for line, _, message in rejected(found) if line == 7)
    assert "first on payments-1.csv, line 2, with different content" in twice
    warning = pq.read_table(found.folder / "warnings.parquet").to_pylist()
    assert [(each["line"], each["rule_id"], each["message"]) for each in warning] == [
        (None, "ZIP-FILES", "readme.txt is not taken: the feed takes no such name")
    ]


def inner_zip() -> bytes:
    return zipped({"payments.csv": ROWS})


def encrypted() -> bytes:
    """An archive whose entry says that it is encrypted, in both of its headers."""
    content = bytearray(zipped({"payments.csv": ROWS}))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def lying() -> bytes:
    """An archive whose entry says that it is smaller than it is."""
    content = bytearray(zipped({"payments.csv": PAYMENTS + payment("a") * 1_000}))
    for head, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = content.index(head) + place
        content[at : at + 4] = (100).to_bytes(4, "little")
    return bytes(content)


ODD = {
    "a zip of zips": (zipped({"payments.zip": inner_zip()}), "payments.zip: the file is a workbook (.xlsx, .ods) or a"),
    "gzip in a zip": (zipped({"payments.csv.gz": gzip.compress(b"x")}), "packed twice; unpack it once"),
    "nothing in it": (zipped({"folder/": ""}), "the archive has no file in it"),
    "no entry at all": (zipped({}), "the archive has no file in it"),
    "a password": (encrypted(), "payments.csv needs a password; put in an archive without one"),
    "an odd method": (zipped({"payments.csv": ROWS}, zipfile.ZIP_LZMA), "packed by a method that cannot be read"),
    "cut off": (inner_zip()[:-30], "a zip archive, and is cut off or damaged"),
    "two archives": (inner_zip() + inner_zip(), "the file holds several archives"),
    "two archives, one of them cut off": (inner_zip() + inner_zip()[:-30], "the file holds several archives"),
    "a wrong size": (lying(), "the zip data is cut off or damaged"),
    "other columns": (
        zipped({"payments-1.csv": ROWS, "payments-2.csv": ROWS.replace("claim_id", "claim")}),
        "payments-2.csv has other columns than payments-1.csv",
    ),
    "too many files": (
        zipped({f"payments-{number}.csv": "" for number in range(1_001)}),
        "1,001 files are in the archive, and an archive may have 1,000; split it",
    ),
    "no name that is taken": (
        zipped({"a.txt": ROWS, "b.txt": ROWS}),
        "2 files are in the archive, and the feed",
    ),
    "a workbook": (zipped({"[Content_Types].xml": "", "xl/workbook.xml": ""}), "the file is a workbook"),
    "an empty file": (zipped({"payments.csv": ""}), "payments.csv: the file is empty"),
    "cut Zstandard": (zstandard(ROWS.encode() * 100)[:-9], "the Zstandard data is cut off or damaged"),
    "damaged Zstandard": (b"\x28\xb5\x2f\xfd" + b"x" * 40, "the Zstandard data is cut off or damaged"),
    "Zstandard in Zstandard": (zstandard(zstandard(ROWS.encode())), "the file is an archive"),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_archive_ends_with_one_sentence(case: str, tmp_path: Path) -> None:
    """FEED-FILE-02"""
    content, fragment = ODD[case]
    with pytest.raises(UnreadableFile) as error:
        validated(content, tmp_path, "payments.zip")
    assert str(error.value).startswith("payments.zip: ")
    assert fragment in str(error.value)
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "run-1").glob("*.parquet"))


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, pytest.param(zstandard, marks=pytest.mark.long), lambda content: zipped({"payments.csv": content})],
)
def test_an_archive_that_unpacks_to_far_more_than_its_size_is_refused(pack, tmp_path, monkeypatch):
    """FEED-FILE-02: a small file that would keep the import busy for long."""
    monkeypatch.setattr(packed, "ALWAYS_TAKEN", 1 << 20)
    bomb = PAYMENTS.encode() + b"\n" * (3 << 20)
    with pytest.raises(UnreadableFile, match=r"payments\.csv\.gz.*: unpacks to more than 1 MB"):
        validated(pack(bomb), tmp_path, "payments.csv.gz")


def test_an_archive_that_unpacks_to_a_hundred_times_its_size_is_taken(tmp_path, monkeypatch):
    """FEED-FILE-01"""
    monkeypatch.setattr(packed, "ALWAYS_TAKEN", 1 << 10)
    monkeypatch.setattr(packed, "MOST_TIMES", 2_000)
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(1 << 20)))
    with first_content(tmp_path / "x.gz").open() as file:
        assert len(file.read()) == 1 << 20


def test_corrections_are_known_in_an_archive(tmp_path: Path) -> None:
    """REJECT-EXPORT-03"""
    path = tmp_path / "fixed.zip"
    path.write_bytes(zipped({"fixed.csv": f"_reject_id,_reasons,{PAYMENTS}{MARK},why,{payment('a')}"}))
    assert marked_form(path) == "csv"
    assert list(ids_in(path)) == [MARK]


def test_an_archive_is_read_again_from_its_beginning(tmp_path: Path) -> None:
    """Without a header on the first line, the reader looks at that line, and begins anew."""
    (tmp_path / "a.zip").write_bytes(zipped({"a.csv": ROWS}))
    (file,) = contents(tmp_path / "a.zip", "a.zip").files
    with file.open() as stream, file.open() as again:
        assert stream.readline() == PAYMENTS.encode()
        assert again.read() == ROWS.encode()


@pytest.mark.parametrize(
    ("name", "taken"),
    [("payments-may.zip", True), ("payments.csv.zst", True), ("pay.zip", False)],
)
def test_an_archive_goes_to_the_feed_of_its_name(name: str, taken: bool) -> None:
    """FEED-FILE-01"""
    feed = load_feeds().match(name)
    assert (feed is not None and feed.name == "payments") == taken


def test_a_draft_of_an_archive_names_it_and_what_is_in_it(tmp_path: Path) -> None:
    """FEED-NEW-01"""
    (tmp_path / "till-05.zip").write_bytes(zipped({"till-01.csv": ROWS}))
    assert 'files = ["till*.zip", "till*.csv"]' in draft(tmp_path / "till-05.zip").splitlines()


def test_a_record_that_is_known_from_an_archive_is_named_by_its_file_and_line(
    home: Path, target: object, asked: Callable[..., dict[str, Any]], chartferry: Callable[..., tuple[int, str, str]]
) -> None:
    """LEDGER-08: lines of a batch run on from file to file, and nobody finds them so."""
    files = {"payments-1.csv": PAYMENTS + payment("a"), "payments-2.csv": PAYMENTS + payment("b") + payment("c")}
    (home / "inbox/payments-may.zip").write_bytes(zipped(files))
    [batch] = [each["batch_id"] for each in asked("import")["batches"]]
    (home / "inbox/payments-june.csv").write_text(PAYMENTS + payment("c", "7.00"))
    asked("import")
    chartferry("rejects", "export", "--out", home / "out")
    [path] = (home / "out").iterdir()
    assert f"with other content, from payments-2.csv, line 3 of {batch}" in path.read_text()


def test_reasons_name_files_of_equal_names_in_an_archive_with_their_folders(tmp_path: Path) -> None:
    """FEED-FILE-01: `till.csv, line 3` could have been in either."""
    files = {"north/payments.csv": PAYMENTS + payment("a") + payment("b", "x"), "south/payments.csv": PAYMENTS + "c\n"}
    found = validated(zipped(files), tmp_path, "payments-may.zip")
    assert [said.partition(":")[0] for *_, said in rejected(found)] == [
        "north/payments.csv, line 3",
        "south/payments.csv, line 2",
    ]
