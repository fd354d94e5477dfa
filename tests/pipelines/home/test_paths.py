"""Kinds of paths, and errors for paths that cannot be examined."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fhir_service.paths import exists, is_file, is_folder, is_link, matching

ALL = (exists, is_file, is_folder, is_link)


def test_the_functions_on_paths_agree_about_folders_files_pipes_and_links(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "broken").symlink_to("nothing")
    (tmp_path / "circle").symlink_to("circle")
    names = ("folder", "file", "pipe", "link", "broken", "circle", "nothing", "file/within")
    found = {name: [each.__name__ for each in ALL if each(tmp_path / name)] for name in names}
    assert found == {
        "folder": ["exists", "is_folder"],
        "file": ["exists", "is_file"],
        "pipe": ["exists"],
        "link": ["exists", "is_file", "is_link"],
        "broken": ["is_link"],
        "circle": ["is_link"],
        "nothing": [],
        "file/within": [],
    }


@pytest.mark.parametrize("asked", ALL)
def test_a_path_that_cannot_be_looked_at_is_an_error(asked: Callable[[Path], bool], tmp_path: Path):
    with pytest.raises(OSError, match="too long"):
        asked(tmp_path / ("x" * 300))


def test_paths_below_a_folder_match_part_by_part(tmp_path: Path):
    for name in ("run-2/a.json", "run-10/a.json", "run-10/b.json", "run-10/.spill/c", "source/a.json", ".hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("run-10")

    def found(pattern: str) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in matching(tmp_path, pattern)]

    assert found("run-*") == ["run-10", "run-2"]
    assert found("run-*/a.json") == ["run-10/a.json", "run-2/a.json"]
    assert found("run-10/*") == ["run-10/.spill", "run-10/a.json", "run-10/b.json"]
    assert found("*/b.json") == ["link/b.json", "run-10/b.json"]
    assert found(".*") == [".hidden"]
    assert found("nothing/*") == found("source/a.json/*") == found("[r]un") == []
    below = ["/".join(path.relative_to(tmp_path).parts) for path in tmp_path.rglob("*")]
    assert found("**") == sorted(below, key=lambda path: path.split("/"))


@pytest.mark.parametrize("pattern", ["*", "*/*", "folder/*", "**"])
def test_a_folder_that_cannot_be_read_is_an_error(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    read, unreadable = Path.iterdir, tmp_path if pattern == "*" else tmp_path / "folder"

    def iterdir(folder: Path) -> Iterator[Path]:
        if folder == unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with pytest.raises(OSError, match="Input/output error"):
        list(matching(tmp_path, pattern))
