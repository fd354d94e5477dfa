"""Forms of files: where the header is, what a file's encoding shows, corrected rejects of any form, trailers."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.home.batch import UnreadableFile
from pipelines.validation.outcome import ValidationResult
from tests.support import validating
from tests.support.validating import keys

NAMED = 'payment_id = "id"\npatient_id = "who"\namount = "sum"\npaid_on = "on"\n'
PLACED = "payment_id = 1\npatient_id = 2\namount = 3\npaid_on = 4\n"
MARK = "0123456789abcdef"
ZEROS = "the file has zero bytes instead of rows, as an unfinished copy has; copy or export it again"
ENDLESS_ZEROS = ZEROS.replace("the file", "line 1002")


def validated(folder: Path, keys: str, content: str | bytes, columns: str = NAMED) -> ValidationResult:
    toml = f'kind = "payments"\nfiles = "*"\n{keys}\n[columns]\n{columns}'
    return validating.validated(content, folder, "till.csv", toml)


@pytest.mark.parametrize(
    ("form", "columns", "lead", "header"),
    [
        ("header = 0", PLACED, "_reject_id,_reasons,", "#1,#2,#3,#4\n"),
        ("header = 3", NAMED, "_reject_id,_reasons,", "id,who,sum,on\n"),
        ('header = 0\nquote = ""', PLACED, "_reject_id,_reasons,", "#1,#2,#3,#4\n"),
    ],
)
def test_corrected_rejects_have_their_header_on_the_first_line(
    form: str, columns: str, lead: str, header: str, tmp_path: Path
) -> None:
    """FEED-FILE-08."""
    content = f"{lead}{header}{MARK},why,a,p1,1.00,2024-05-01\n,,b,p2,2.00,2024-05-02\n"
    found = validated(tmp_path, form, content, columns)
    assert (keys(found), found.header, found.rejected) == (["a", "b"], 1, 0)
    assert pq.read_table(found.folder / "answers.parquet")["reject_id"].to_pylist() == [MARK]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_encodings_are_read_with_and_without_their_mark(encoding: str, tmp_path: Path) -> None:
    """FEED-FILE-08."""
    named = "utf-16" if encoding.startswith("utf-16") else encoding
    content = "id,who,sum,on\nä📞,p1,1.00,2024-05-01\n".encode(encoding)
    found = validated(tmp_path, f'encoding = "{named}"', content)
    assert keys(found) == ["ä📞"]


@pytest.mark.parametrize(
    ("form", "content", "sentence"),
    [
        ('encoding = "utf-16"', b"id,who,sum,on\n", "the file is not UTF-16, as its feed says"),
        ('encoding = "utf-16"', '[{"id": 1}]'.encode("utf-16"), "the file is a JSON array"),
        ('encoding = "utf-16"', "id,who,sum,on\n1".encode("utf-16")[:-1], "the file is not text in utf-16"),
        (
            'encoding = "windows-1252"',
            "id,who,sum,on\n".encode("utf-8-sig"),
            "the file is UTF-8, as its first bytes show",
        ),
        ("", bytes(5_000), ZEROS),
        ("", b"id,who,sum,on\n1,p1,1.00,2024-05-01\n" + bytes(5_000), ZEROS),
        ("", b"id,who,sum,on\n" + b"1,p1,1.00,2024-05-01\n" * 1_000 + bytes(3 << 20), ENDLESS_ZEROS),
        ("", b"id,who,sum,on\n" + bytes(range(16)) * 300, "the file is binary"),
        ("header = 5", b"a\nb\n", "there is no header on line 5 or below it"),
        ("header = 2", b'a\n"id\nx', "the header is not a CSV header"),
    ],
)
def test_a_file_of_another_form_than_its_feed_says_ends_with_one_sentence(
    form: str, content: bytes, sentence: str, tmp_path: Path
) -> None:
    """FEED-FILE-08."""
    with pytest.raises(UnreadableFile) as error:
        validated(tmp_path, form, content)
    assert str(error.value).startswith(f"till.csv: {sentence}")


ROWS = "id,who,sum,on\n1,p1,1.00,2024-05-01\n2,p2,2.50,2024-05-01\n"
TRAILER = '[trailer]\nwhen.id = "END"\nrows = "#2"\namount = "sum"\n'


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        ("END,2,3.50,\n", None),
        ("END,2,3.50\n\n", None),
        ("END,2,3.50,,,more\n", None),
        ("END,3,3.50,\n", "the trailer on line 4 says 3 rows, the file has 2"),
        ("END,2,3.49,\n", "the trailer on line 4 says a different amount than the rows of the file have"),
        ("END,2,,\n", "the trailer on line 4 has no amount in the form that its feed expects"),
        ("END,2,3.50,\n3,p1,1.00,2024-05-01\n", "the trailer on line 4 is followed by further rows"),
        ("", "the file has no trailer row, but its feed says that it ends with one"),
    ],
)
def test_a_trailer_is_compared_with_its_file(end: str, sentence: str | None, tmp_path: Path) -> None:
    """LEDGER-14: a trailer row whose count or sum differs stops the batch before anything is sent."""
    found = validated(tmp_path, TRAILER, ROWS + end)
    assert (found.stop or "").startswith(sentence or "")
    assert bool(found.stop) == bool(sentence)
    assert found.rejected == 0
    assert found.lines == found.header + found.not_taken + found.accepted
