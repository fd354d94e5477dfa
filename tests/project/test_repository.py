"""The repository's own promises: the lock, the packaging and Dagster's workspace."""

import re
import stat
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.conftest import longest_first
from tests.support.order import SECONDS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def locked() -> dict[str, str]:
    """The locked versions by normalised name."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*])?==([^ ;]+)", LOCK, re.MULTILINE)
    return {normalised(name): version for name, version in pins}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> list[str]:
    """The names of all packages that pyproject.toml asks for, extras included."""
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    return [normalised(re.split(r"[\[<>=~!; ]", one, maxsplit=1)[0]) for one in wanted]


def test_the_lock_names_no_index_no_url_and_no_path_of_a_machine():
    assert not re.search(r"://|--(extra-)?index|--find-links|(^|\s)/\w+/", LOCK)


def test_the_lock_has_a_version_and_a_hash_for_every_package():
    entries = re.split(r"\n(?=\S)", LOCK)
    packages = [entry for entry in entries if not entry.startswith("#")]
    assert len(packages) > len(declared())
    assert [
        entry.splitlines()[0] for entry in packages if not re.search(r"==\S+ .*--hash=sha256:", entry, re.DOTALL)
    ] == []


def test_the_lock_holds_every_package_that_the_project_asks_for():
    assert [name for name in declared() if name not in locked()] == []


def test_the_tests_run_with_the_locked_versions():
    installed = {name: metadata.version(name) for name in declared()}
    assert installed == {name: locked()[name] for name in declared()}


def test_nothing_makes_dagster_ignore_the_workspace_file():
    assert {"dg", "dagster"} & set(PROJECT["tool"]) == set()
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text(encoding="utf-8"))
    assert workspace == {"load_from": [{"python_module": {"module_name": "pipelines.definitions"}}]}


def test_the_changelog_knows_of_unreleased_changes_or_of_this_version():
    headings = re.findall(r"^## \[([^]]+)]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"Unreleased", PROJECT["project"]["version"]} & set(headings)


def test_files_of_tests_that_take_longest_begin_first() -> None:
    """They are there, and `make test` hands files out in the order in which they are collected."""
    assert not [name for name in SECONDS if not (ROOT / "tests" / name).is_file()]
    names = ["short.py", *reversed(SECONDS), "short_too.py"]
    items = [SimpleNamespace(nodeid=f"tests/{name}::test_{number}") for name in names for number in (1, 2)]
    longest_first(items)  # type: ignore[arg-type]
    found = [item.nodeid.partition("::")[0].removeprefix("tests/") for item in items]
    assert [SECONDS.get(name, 0) for name in found] == sorted((SECONDS.get(name, 0) for name in found), reverse=True)
    assert [item.nodeid for item in items if "short" in item.nodeid] == [
        f"tests/short{more}.py::test_{number}" for more in ("", "_too") for number in (1, 2)
    ]
    assert " --dist loadfile --no-loadscope-reorder\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a clone says which files are its own")
def test_no_file_is_larger_than_the_samples():
    """What a run leaves behind, such as an audit, is larger."""
    named = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = [ROOT / name for name in named.split("\0") if name and (ROOT / name).exists()]
    assert [path.name for path in found if path.stat().st_size > 600_000] == []


def test_no_file_has_a_name_that_a_shell_would_read():
    """A slip of the pen in a shell makes one, named like a piece of code."""
    folders = [ROOT, *(ROOT / name for name in ("bench", "docs", "fhir_service", "pipelines", "sql", "tests"))]
    named = [path.name for folder in folders for path in folder.iterdir()]
    assert [name for name in named if not re.fullmatch(r"[\w.+-]+", name)] == []


def test_make_import_leaves_a_folder_alone_that_holds_other_things(tmp_path):
    """STATE-HOME-01: its mode, too: others may have to read it."""
    tmp_path.chmod(0o755)
    (tmp_path / "letter.txt").touch()
    asked = ["make", "-o", ".venv/.installed", "import", f"BIN={Path(sys.executable).parent}"]
    for home, said in ((tmp_path, "holds other things"), ("", "HOME_DIR is empty")):
        found = subprocess.run([*asked, f"HOME_DIR={home}"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert found.returncode == 2
        assert said in found.stdout + found.stderr
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
