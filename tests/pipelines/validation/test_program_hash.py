"""The hash of the program, by which a run knows that an earlier one checked a file as it would."""

import sys
import zoneinfo
from pathlib import Path
from unittest.mock import patch

import pytest

from pipelines.validation import program_hash


def test_the_hash_of_the_program_changes_with_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is older than the files has no hash: it may run older code."""
    file = tmp_path / "rules.py"
    file.write_text("one")
    monkeypatch.setattr(program_hash, "_files", lambda _: iter([(tmp_path, file)]))
    monkeypatch.setattr(program_hash, "_packages", list)
    assert program_hash.program_hash("UTC") is None, "this process is older"
    hashes = set()
    for text in ("one", "two", "one"):
        file.write_text(text)
        program_hash._hash.cache_clear()
        with patch.object(program_hash, "_is_as_started", lambda _: True):
            hashes.add(program_hash.program_hash("UTC"))
    program_hash._hash.cache_clear()
    assert len(hashes) == 2


def test_the_program_is_known_by_its_files_and_by_packages() -> None:
    names = {str(path.relative_to(place)) for place, path in program_hash._files("Europe/Berlin")}
    assert {"pipelines/validation/checker.py", "pipelines/feeds/terms/rules.toml", "fhir_service/app.py"} <= names
    assert "Europe/Paris" not in names
    assert ("Europe/Berlin" in names) == any((Path(each) / "Europe/Berlin").exists() for each in zoneinfo.TZPATH)
    assert any(path.name.startswith("pyarrow-") for path in program_hash._packages())


def test_a_package_of_the_same_version_with_other_files_is_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not so one without a list of its files, of which the version is known alone."""
    monkeypatch.setattr(program_hash, "_files", lambda _: iter(()))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(program_hash, "_is_as_started", lambda _: True)
    (tmp_path / "old-1.0.egg-info").mkdir()
    (tmp_path / "some-1.0.dist-info").mkdir()
    record = tmp_path / "some-1.0.dist-info" / "RECORD"
    hashes = []
    for text in ("some.py,sha256=a,1", "some.py,sha256=b,1", "some.py,sha256=a,1"):
        record.write_text(text)
        program_hash._hash.cache_clear()
        hashes.append(program_hash.program_hash("UTC"))
    program_hash._hash.cache_clear()
    assert hashes[0] == hashes[2] != hashes[1]
