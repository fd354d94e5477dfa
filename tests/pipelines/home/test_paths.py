"""What a path names, and what cannot be told of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.home.paths import exists, is_file, is_folder, is_link

ALL = (exists, is_file, is_folder, is_link)


def test_a_path_is_known_by_what_it_names(tmp_path: Path):
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
