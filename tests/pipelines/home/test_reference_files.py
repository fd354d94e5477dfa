"""The files of reference data in a folder: every part of the program takes the same ones."""

import gzip
import json
from pathlib import Path

import pytest

from fhir_service.reference.reading import files
from pipelines.home.reference_files import reference_bodies, reference_files, reference_lines

PATIENT = {"resourceType": "Patient", "id": "p1"}
NAMES = ("a.ndjson", "b.jsonl", "c.ndjson.gz", "d.jsonl.gz")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (*NAMES, ".e.ndjson", "f.csv"):
        text = f"{json.dumps(PATIENT | {'id': name[0]})}\nnot JSON, of a Patient\n".encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    (tmp_path / "g.ndjson").mkdir()
    return tmp_path


def test_files_of_reference_data_have_the_same_endings_everywhere(folder: Path) -> None:
    assert [path.name for path in reference_files(folder)] == [*NAMES]
    assert {path.name for path in files([folder])} == {*NAMES, ".e.ndjson"}
    assert reference_files(folder / "none") == []


def test_resources_of_the_wanted_types_are_read_from_each_file(folder: Path) -> None:
    assert [each["id"] for each in reference_bodies(folder, ["Patient"])] == ["a", "b", "c", "d"]
    assert list(reference_bodies(folder, ["Claim"])) == []


def test_a_compressed_file_that_is_cut_off_is_a_fault_of_the_file(folder: Path) -> None:
    (folder / "c.ndjson.gz").write_bytes((folder / "c.ndjson.gz").read_bytes()[:-9])
    with pytest.raises(OSError, match="cut off or damaged"):
        list(reference_lines(folder / "c.ndjson.gz"))


def test_a_line_without_end_is_read_in_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.home.reference_files.LONGEST", 10)
    lines = list(reference_lines(folder / "d.jsonl.gz"))
    assert max(map(len, lines)) == 10
    assert list(reference_bodies(folder, ["Patient"])) == []
