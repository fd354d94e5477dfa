"""JSON arrays and Parquet files: rows by their number, rejects as lines, and one sentence for what is neither."""

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.feeds.drafting.draft import draft
from pipelines.feeds.reading import objects, parquet
from pipelines.feeds.reading.objects import ArrayReader
from pipelines.feeds.reading.packed import first_content
from pipelines.feeds.reading.parquet import ParquetReader
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import UnreadableFile
from pipelines.validation.outcome import ValidationResult
from tests.support.archives import zipped
from tests.support.peaks import peak_of
from tests.support.validating import accepted, rejected, rows, validated
from tests.support.workbooks import Cell, sheet, workbook

FEED = """
kind = "payments"
files = ["till*.json", "till*.parquet"]
{more}
[columns]
payment_id = "id"
patient_id = "who"
amount = "amount"
paid_on = "day"
"""
TASKS = """
kind = "tasks"
files = ["till*.parquet"]
[columns]
task_id = "no"
description = { join = ["a", "b", "c", "d", "e", "f", "g"], with = "|" }
status = { constant = "requested" }
requester_id = { constant = "d1" }
"""


def payment(key: object, amount: object = "1.00") -> dict[str, object]:
    return {"id": key, "who": "p1", "amount": amount, "day": "2024-01-01"}


def read(content: bytes | str, folder: Path, name: str = "till.json", more: str = "") -> ValidationResult:
    return validated(content, folder, name, FEED.replace("{more}", more))


# --- JSON arrays ----------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_line_of_an_object_is_its_number_in_the_array(indent: int | None, encoding: str, tmp_path: Path) -> None:
    """FEED-FILE-04"""
    text = json.dumps([payment("a"), payment("b", "x"), [1], payment("Bücher", 12.5)], indent=indent)
    found = read(text.encode(encoding), tmp_path, more=f'encoding = "{encoding.removesuffix("-sig")}"')
    assert accepted(found) == [(1, "a"), (4, "Bücher")]
    assert [(line, lines) for line, lines, _ in rejected(found)] == [(2, 1), (3, 1)]
    assert rejected(found)[1][2] == "not a JSON object; each line must hold one"
    assert (found.lines, found.rows, found.amount_accepted) == (4, 4, 1350)
    assert [each["record"].count("\n") for each in rows(found, "rejects")] == [1, 1]


def test_an_array_in_a_zip_and_an_empty_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert read(" [ ]\n", tmp_path / "empty").rows == 0
    feed = FEED.replace("{more}", "").replace("till*.json", "till*.zip")
    found = validated(zipped({"a.json": json.dumps([payment("a")])}), tmp_path, "till.zip", feed)
    assert accepted(found) == [(1, "a")]


def test_the_objects_of_an_array_are_those_that_a_parser_finds(tmp_path, monkeypatch):
    """A law: the objects do not depend on where blocks of the file end."""
    monkeypatch.setattr(objects, "BLOCK", 7)
    draw = random.Random(3)
    for number in range(40):
        whole = [value(draw, 3) for _ in range(draw.randrange(12))]
        text = json.dumps(whole, indent=draw.choice([None, 1]), ensure_ascii=draw.random() < 0.5)
        (tmp_path / f"{number}.json").write_text(text, encoding="utf-8")
        feed = FeedFile(name="a", source="a", kind="payments", files=("a",))
        with ArrayReader(first_content(tmp_path / f"{number}.json"), feed) as reader:
            assert [json.loads(text) for text in reader._elements()] == whole


def value(draw: random.Random, depth: int) -> Any:
    kind = draw.randrange(7 if depth else 4)
    if kind < 4:
        return [draw.randrange(10**9), "".join(draw.choices('a"\\,[]{}é\n 😀', k=draw.randrange(20))), None, True][kind]
    if kind < 6:
        return {f"k{place}": value(draw, depth - 1) for place in range(draw.randrange(5))}
    return [value(draw, depth - 1) for _ in range(draw.randrange(5))]


ODD_ARRAYS: dict[str, tuple[str | bytes, str]] = {
    "one object a line": (
        '{"id": 1}\n{"id": 2}\n',
        'if it has one object on each line, set format = "ndjson"',
    ),
    "cut off": (
        json.dumps([payment("a"), payment("b")])[:-9],
        "object 2 is not JSON, is cut off or is longer than 2 MiB",
    ),
    "no comma": ('[{"id": 1} {"id": 2}]', "object 2 is not JSON"),
    "a comma at the end": ('[{"id": 1},]', "object 2 is not JSON"),
    "more behind it": ('[{"id": 1}]\n[]', "there is more text after the array"),
    "very deep": ("[" * 100_000, "object 1 is not JSON"),
    "very long": ('[{"id": "' + "x" * (5 << 20) + '"}]', "cut off or is longer than 2 MiB"),
    "nothing": ("", "the file is empty"),
    "a workbook": (zipped({"[Content_Types].xml": ""}), "the file is a workbook"),
    "another encoding": ('[{"id": "Bücher"}]'.encode("utf-16"), 'set encoding = "utf-16" in the feed file'),
}


@pytest.mark.parametrize("case", ODD_ARRAYS)
def test_a_text_that_is_not_a_json_array_ends_with_one_sentence(case: str, tmp_path: Path) -> None:
    """FEED-FILE-04"""
    content, fragment = ODD_ARRAYS[case]
    with pytest.raises(UnreadableFile) as error:
        read(content, tmp_path)
    assert str(error.value).startswith("till.json: ")
    assert fragment in str(error.value)
    assert "\n" not in str(error.value)


# --- Parquet --------------------------------------------------------------------------------------


def packed(table: pa.Table, **options: Any) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out, **options)
    return bytes(out.getvalue())


@pytest.mark.parametrize(
    ("written_by", "begins"),
    [({"org.apache.spark.version": "3.5.1"}, "2024-03-01 12:00:00"), ({}, "2024-03-01 17:00:00")],
)
def test_moments_of_spark_are_in_utc_and_others_without_a_zone_in_that_of_the_feed(written_by, begins, tmp_path):
    """FEED-FILE-08: an INT96 has no zone. One of the year 9999 must not be read as 1816."""
    days = [datetime(2024, 3, 1, 12), datetime(9999, 12, 31)]  # noqa: DTZ001 - as the file has them
    table = pa.table({"id": ["a", "b"], "who": ["p1", "p1"], "amount": ["1.00", "2.00"], "day": days})
    file = tmp_path / "spark.parquet"
    pq.write_table(table.replace_schema_metadata(written_by), file, use_deprecated_int96_timestamps=True)
    more = 'timezone = "America/New_York"\nempty = ["9999-12-31T00:00:00", "9999-12-31T00:00:00+00:00"]'
    found = read(file.read_bytes(), tmp_path, "till.parquet", more)
    assert str(rows(found, "accepted")[0]["source_at"]).startswith(begins)
    assert [(line, said) for line, _, said in rejected(found)] == [(2, "the column is required and empty here")]


def test_the_line_of_a_parquet_row_is_its_number(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    blank = dict.fromkeys(payment("a"))
    table = pa.Table.from_pylist([payment("a"), blank, payment("b", "x"), payment("c")])
    found = read(packed(table, row_group_size=2), tmp_path, "till.parquet")
    assert accepted(found) == [(1, "a"), (4, "c")]
    assert [line for line, _, _ in rejected(found)] == [3]
    assert (found.lines, found.header, found.not_taken) == (4, 0, 1)
    assert rows(found, "rejects")[0]["record"] == "b,p1,x,2024-01-01\r\n"


def test_values_of_every_type_are_texts(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    moment = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    columns = {
        "no": pa.array([1, 2], pa.int64()),
        "a": pa.array([date(2026, 3, 1), None]),
        "b": pa.array([moment, None], pa.timestamp("ns", "UTC")),
        "c": pa.array([Decimal("12.50"), Decimal("-3.00")]),
        "d": pa.array([0.1, float("nan")]),
        "e": pa.array([True, False]),
        "f": pa.array(["x", "y"]).dictionary_encode(),
        "g": pa.array([b"bytes", "é".encode()]),
        "unnamed": pa.array([[1, 2], None]),
    }
    found = validated(packed(pa.table(columns)), tmp_path, "till.parquet", TASKS)
    assert [json.loads(each["body"])["description"] for each in rows(found, "accepted")] == [
        "2026-03-01|2026-03-01T12:30:00+00:00|12.50|0.1|true|x|bytes",
        "-3.00|false|y|é",
    ]
    assert found.unnamed_columns == ["unnamed"]


def test_uuids_and_views_are_plain_texts(tmp_path: Path) -> None:
    """FEED-FILE-08: they have no quotes, which would change keys and references."""
    name = UUID("6f1e0000-0000-4000-8000-00000000000a")
    columns = {
        "id": pa.array([name.bytes, None, name.bytes], pa.uuid()),
        "who": pa.array([b"p1", b"p2", b"\xff"], pa.binary_view()),
        "amount": pa.array(["1.00"] * 3, pa.string_view()),
        "day": pa.array(["2024-01-01"] * 3),
    }
    found = read(packed(pa.table(columns)), tmp_path, "till.parquet")
    assert accepted(found) == [(1, str(name))]
    assert json.loads(rows(found, "accepted")[0]["body"])["request"]["reference"] == "Patient/p1"
    assert {line for line, *_ in rejected(found)} == {2, 3}


def test_bytes_that_are_no_text_reject_their_row(tmp_path: Path) -> None:
    """FEED-FILE-09"""
    table = pa.Table.from_pylist([payment(b"a"), payment(b"\xff")])
    found = read(packed(table), tmp_path, "till.parquet")
    assert accepted(found) == [(1, "a")]
    assert [(line, message[:32]) for line, _, message in rejected(found)] == [(2, "id: bytes that are not UTF-8, or")]


def test_bytes_of_a_fixed_width_are_texts(tmp_path: Path) -> None:
    """FEED-FILE-08, FEED-FILE-09: not Python's notation of bytes. Columns without a name in the feed may be no text."""
    columns = {
        "id": pa.array([b"k1\0\0", b"k002", b"\xff\0\0\1", None], pa.binary(4)),
        "who": pa.array([b"p1", b"p2", b"p3", None], pa.binary(2)).dictionary_encode(),
        "amount": pa.array([1.25, 2.5, 3, None], pa.float32()),
        "day": pa.array([b"2024-01-01", b"2024-01-01", b"2024-\xff1-01", None], pa.binary(10)),
        "checksum": pa.array([b"\xff" * 16, b"\xfe" * 16, b"\xfd" * 16, b"\xff" * 16], pa.binary(16)),
        "parts": pa.array([[b"a"], [b"\xff"], [b"c"], None], pa.list_(pa.binary())),
    }
    found = read(packed(pa.table(columns)), tmp_path, "till.parquet")
    assert accepted(found) == [(1, "k1"), (2, "k002")]
    assert found.amount_accepted == 375
    said = {line: message for line, _, message in rejected(found)}
    assert said[3].startswith("id, day: bytes that are not UTF-8")
    assert set(said) == {3, 4}
    assert next(each["record"] for each in rows(found, "rejects")) == ',p3,3.0,,,"[""c""]"\r\n'
    assert "b'" not in str([*rows(found, "accepted"), *rows(found, "rejects")])


TEXTS: dict[str, tuple[Any, list[str]]] = {
    "floats": (pa.array([0.1, 1.5], pa.float32()), ["0.1", "1.5"]),
    "large floats": (pa.array([1e20, -0.25]), ["100000000000000000000.0", "-0.25"]),
    "no numbers": (pa.array([float("nan"), float("inf")]), ["", "Infinity"]),
    "nothing": (pa.nulls(2), ["", ""]),
    "decimals": (
        pa.array([Decimal(f"{'9' * 70}.12"), Decimal("-0.10")], pa.decimal256(76, 2)),
        [f"{'9' * 70}.12", "-0.10"],
    ),
    "durations": (pa.array([90_061, -1], pa.duration("s")), ["25:01:01", "-0:00:01"]),
    "short durations": (pa.array([1_500_000_001, 60 * 10**9], pa.duration("ns")), ["0:00:01.500000", "0:01:00"]),
    "times": (pa.array([3_661, None], pa.time32("s")), ["01:01:01", ""]),
    "short times": (pa.array([3_661_000_000_001, None], pa.time64("ns")), ["01:01:01", ""]),
    "moments": (
        pa.array([10**18 + 1, None], pa.timestamp("ns", "Europe/Berlin")),
        ["2001-09-09T03:46:40+02:00", ""],
    ),
    "large bytes": (pa.array([b"x", "é".encode()], pa.large_binary()), ["x", "é"]),
    "bytes in a dictionary": (pa.array([b"xy", b"xy"], pa.binary(2)).dictionary_encode(), ["xy", "xy"]),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_value_is_the_text_that_a_csv_would_have(case: str, tmp_path: Path) -> None:
    """FEED-FILE-08"""
    values, texts = TEXTS[case]
    (tmp_path / "till.parquet").write_bytes(packed(pa.table({"id": ["1", "2"], "value": values})))
    feed = FeedFile(name="a", source="a", kind="payments", files=("a",))
    with ParquetReader(tmp_path / "till.parquet", "till.parquet", feed) as reader:
        assert [row.cells for chunk in reader.chunks() for row in chunk.rows] == [["1", texts[0]], ["2", texts[1]]]


def test_a_large_key_that_came_as_a_float_is_no_key(tmp_path: Path) -> None:
    """FEED-FILE-09: its last digits may be lost, so that two records would have one key."""
    found = read(packed(pa.Table.from_pylist([payment(2.0**60), payment(7.0)])), tmp_path, "till.parquet")
    assert [message[:25] for _, _, message in rejected(found)] == ["this key was turned into "] * 2


def test_a_file_whose_feed_maps_a_nested_column_by_position_is_refused(tmp_path: Path) -> None:
    """FEED-FILE-02"""
    table = pa.Table.from_pylist([payment([1])])
    with pytest.raises(UnreadableFile, match="id holds lists or objects"):
        validated(packed(table), tmp_path, "till.parquet", FEED.replace("{more}", "").replace('"id"', '"#1"'))


@pytest.mark.parametrize(
    ("days", "good"),
    [
        (pa.array([100_000_000, 20_455], pa.date32()), [(2, "b")]),
        (pa.array([1_700_000_000_000, 1_767_312_000], pa.timestamp("s")), [(2, "b")]),
        (pa.array([1_767_312_000, 1_767_312_001], pa.timestamp("s", "Nowhere/City")), []),
        (pa.array([2**64 // 10**6 + 1_767_312_000, 1_767_312_000], pa.timestamp("s")), [(2, "b")]),
    ],
)
def test_a_day_that_no_calendar_has_rejects_its_row_alone(days: Any, good: list[Any], tmp_path: Path) -> None:
    """Otherwise every import would end at this file with a fault of the program."""
    table = pa.table({"id": ["a", "b"], "who": ["p1", "p2"], "amount": ["1.00", "2.00"], "day": days})
    found = read(packed(table), tmp_path, "till.parquet")
    assert accepted(found) == good
    assert {line for line, *_ in rejected(found)} == {1, 2} - {line for line, _ in good}


def of_long_texts() -> pa.Table:
    """Return rows that share a text, which the file holds once."""
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 20), pa.array(["x" * (3 << 20)]))
    return pa.table(dict.fromkeys(payment("a"), shared))


ODD_PARQUET = {
    "nested columns": (
        packed(pa.Table.from_pylist([payment({"x": 1})])),
        "id holds lists or objects",
    ),
    "another header": (packed(pa.table({"x": [1]})), "the header lacks id, who, amount, day"),
    "no Parquet": (b"id,who\n", "not a Parquet file, or a damaged one; export it again"),
    "cut off": (packed(pa.Table.from_pylist([payment("a")]))[:-9], "not a Parquet file, or a damaged one"),
    "a long text": (
        packed(of_long_texts(), store_schema=False),
        "row 1 is longer than 2 MiB; check that it is an export",
    ),
    "corrected rejects": (packed(pa.table({"_reject_id": ["a"]})), "save the file as CSV UTF-8"),
}


@pytest.mark.parametrize("case", ODD_PARQUET)
def test_an_odd_parquet_file_ends_with_one_sentence(case: str, tmp_path: Path) -> None:
    """FEED-FILE-02"""
    content, fragment = ODD_PARQUET[case]
    with pytest.raises(UnreadableFile) as error:
        read(content, tmp_path, "till.parquet")
    assert str(error.value).startswith("till.parquet: ")
    assert fragment in str(error.value)
    assert "\n" not in str(error.value)


def test_damaged_pages_end_with_one_sentence(tmp_path: Path) -> None:
    content = bytearray(packed(pa.Table.from_pylist([payment(str(n)) for n in range(1_000)])))
    content[8:600] = bytes(592)
    with pytest.raises(UnreadableFile, match="the Parquet data is damaged; export the file again"):
        read(bytes(content), tmp_path, "till.parquet")


def test_a_file_of_far_more_rows_than_its_size_is_refused(tmp_path, monkeypatch):
    """FEED-FILE-02: rows without content need hardly any bytes."""
    monkeypatch.setattr(parquet, "ALWAYS_ROWS", 1_000)
    table = pa.table({name: pa.nulls(1_000_000, pa.string()) for name in payment("a")})
    with pytest.raises(UnreadableFile, match="unpacks to far more than an export of its size"):
        read(packed(table), tmp_path, "till.parquet")


def test_a_long_text_that_all_rows_share_is_refused(tmp_path, monkeypatch):
    """FEED-FILE-02: the file holds it only once, memory once for each row."""
    monkeypatch.setattr(parquet, "ALWAYS_TAKEN", 1_000_000)
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000), pa.array(["x" * 100_000]))
    table = pa.table(dict.fromkeys(payment("a"), shared))
    with pytest.raises(UnreadableFile, match="unpacks to far more than an export of its size"):
        read(packed(table, store_schema=False), tmp_path, "till.parquet")


def test_rows_of_long_lists_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """FEED-FILE-08: otherwise a file of 1 KB could take 2 GB."""
    columns = {name: [cell] * 400 for name, cell in payment("a").items()}
    (tmp_path / "till.parquet").write_bytes(packed(pa.table(columns | {"list": pa.array([[None] * 10_000] * 400)})))
    feed = FeedFile(name="a", source="a", kind="payments", files=("a",))

    def read_all() -> None:
        with ParquetReader(tmp_path / "till.parquet", "till.parquet", feed) as reader:
            assert sum(1 for _ in reader.rows()) == 400

    assert peak_of(read_all) < 15_000_000


# --- Drafts ---------------------------------------------------------------------------------------


def test_a_draft_of_each_form_says_its_form_and_columns(tmp_path: Path) -> None:
    """CLI-CMD-15: once its decisions are made, the draft is a feed that reads the file."""
    many = [payment(f"k{number}", f"{number}.50") for number in range(9)]
    names = list(many[0])
    cells: list[list[Cell]] = [["Till"], names, *[list(each.values()) for each in many]]  # type: ignore[list-item]
    files = {
        "payments.json": json.dumps(many).encode(),
        "payments.parquet": packed(pa.Table.from_pylist(many)),
        "payments.xlsx": workbook({"A": sheet(cells), "B": sheet([])}, is_1904=True),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        text = draft(tmp_path / name)
        form = name.partition(".")[2]
        for line in (f'format = "{form}"', f'files = ["payments*.{form}"]', 'payment_id = "id"', 'paid_on = "day"'):
            assert line in text
    for line in ('sheet = "A"  # DECIDE: it also has "B"', "dates_since = 1904  # DECIDE", "header = 2"):
        assert line in text
    folder = tmp_path / "run"
    folder.mkdir()
    found = validated(
        files["payments.xlsx"], folder, "payments.xlsx", text.replace('# patient_id = "..."', 'patient_id = "who"')
    )
    assert (found.accepted, found.rejected) == (9, 0)
