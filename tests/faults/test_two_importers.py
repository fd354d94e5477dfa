"""Two importers started together over one home: nothing is made twice, and each says what it does."""

import multiprocessing
import os
import random
import re
from pathlib import Path

import pytest

from pipelines.cli import run
from pipelines.importing import begin_and_end
from tests.faults.runs import Importer, disagreements
from tests.faults.service import serving
from tests.faults.world import first_exports, write_feeds, write_world
from tests.support.commands import forget_settings

CHILDREN = multiprocessing.get_context("forkserver")
TIMES = 5
SAYS = re.compile(
    r"waiting for process \d+ on \S+, which loads into this target|taken by another importer, or removed|no files"
)


@pytest.fixture(scope="module", autouse=True)
def preloaded():
    CHILDREN.set_forkserver_preload(["pipelines.cli", "pipelines.importing.imports", __name__])


@pytest.fixture(scope="module", params=[False, True], ids=["with additions", "bare"])
def target(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    world = write_world(folder / "world", 100)
    with serving(folder, world, request.param) as target:
        yield target


def an_import(home, environ, said, together):
    """`chartferry import`, begun with the others, without the publication; what it prints goes to a file."""
    os.environ.update(environ)
    begin_and_end.publish_into = lambda *_: None
    with said.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    together.wait()
    os._exit(run(["--home", str(home), "import"]))


def at_once(target, home, monkeypatch, number):
    """Two importers over an inbox; what each said, and what does not agree in the end."""
    forget_settings(monkeypatch)
    write_feeds(home)
    source = first_exports(home, number, random.Random(number), TIMES)
    environ = {
        "FHIR_BASE_URL": target.url,
        "FHIR_CLIENT_ID": target.credentials.client_id,
        "FHIR_CLIENT_SECRET": target.credentials.client_secret,
    }
    together, said = CHILDREN.Barrier(2), [home / f"said-{each}" for each in range(2)]
    children = [CHILDREN.Process(target=an_import, args=(home, environ, each, together)) for each in said]
    for child in children:
        child.start()
    for child in children:
        child.join()
    texts = [Path(each).read_text() for each in said]
    assert [child.exitcode for child in children] == [0, 0], texts
    assert disagreements(Importer(home, target.url, target.url, target.credentials), target, source, set()) == []
    return texts


def test_two_importers_make_nothing_twice_and_say_what_they_do(target, tmp_path, monkeypatch):
    """LEDGER-01, LEDGER-10"""
    texts = at_once(target, tmp_path / "home", monkeypatch, 0)
    assert any(SAYS.search(text) for text in texts), texts


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, 21))
def test_two_importers_make_nothing_twice_in_twenty_repetitions(target, tmp_path, monkeypatch, number):
    """LEDGER-01, LEDGER-10"""
    texts = at_once(target, tmp_path / "home", monkeypatch, number)
    assert any(SAYS.search(text) for text in texts), texts
