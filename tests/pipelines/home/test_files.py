"""Files that are only ever replaced whole."""

from pathlib import Path

import pytest

from pipelines.home import files


def test_files_that_are_replaced_together_are_on_the_disk_before_the_first_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [tmp_path / f"{number}.part" for number in range(20)]
    told: list[str] = []
    for part in parts:
        part.write_text("new")
        part.with_suffix(".old").write_text("old")
    monkeypatch.setattr(files, "to_disk", lambda path: told.append(f"{path.name} {read(parts[0].with_suffix('.old'))}"))
    files.replace_each_whole({part: part.with_suffix(".old") for part in parts}, 0o444)
    assert sorted(told[:-1]) == sorted(f"{part.name} old" for part in parts)
    assert told[-1] == f"{tmp_path.name} new"
    assert [read(part.with_suffix(".old")) for part in parts] == ["new"] * 20


def test_none_is_replaced_if_one_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.part", "b.part", "a", "b"):
        (tmp_path / name).write_text(name)

    def full(path: Path) -> None:
        if path.name == "b.part":
            raise OSError(28, "no space left")

    monkeypatch.setattr(files, "to_disk", full)
    with pytest.raises(OSError, match="no space left"):
        files.replace_each_whole({tmp_path / "a.part": tmp_path / "a", tmp_path / "b.part": tmp_path / "b"})
    assert read(tmp_path / "a") == "a"


def test_an_interrupt_during_a_query_of_a_session_is_raised_as_one(tmp_path: Path) -> None:
    """DuckDB turns it into this error."""
    with pytest.raises(KeyboardInterrupt), files.session(tmp_path / "spill"):
        raise RuntimeError("Query interrupted")


def read(path: Path) -> str:
    return path.read_text()
