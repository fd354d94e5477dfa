"""Services over PostgreSQL that die under load: what was acknowledged is there once."""

import contextlib
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fhir_service.admin.checks import check_store
from tests.conftest import WORLD, running
from tests.service.serving.test_kills import Load
from tests.support.bodies import total
from tests.support.called import command_output
from tests.support.commands import command, environment
from tests.support.contention import authorized
from tests.support.postgres import running_server
from tests.support.starting import start


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_an_acknowledged_write_is_there_once_whatever_dies(tmp_path: Path, seed: int) -> None:
    """Under load, one of two services is killed, and the database crashes."""
    dice = random.Random(seed)
    with running_server() as server, server.database() as store, contextlib.ExitStack() as stack:
        command_output("load", "--store", store, str(WORLD))
        headers = authorized(store)
        services = [stack.enter_context(killable(store, made(tmp_path / str(n)))) for n in range(2)]
        loads = [Load(url, headers) for _, url in services]
        threads = [threading.Thread(target=load.run) for load in loads]
        for thread in threads:
            thread.start()
        for act in (server.restart, services[0][0].kill, server.restart):
            time.sleep(dice.uniform(0.5, 2))
            act()
        time.sleep(1)
        services[1][0].kill()
        for thread in threads:
            thread.join()
        with running(made(tmp_path / "after"), store=store) as found:
            acknowledged = {path: body for load in loads for path, body in load.acknowledged.items()}
            assert len(acknowledged) > 20
            for path, body in acknowledged.items():
                there = found.client.get(path).json()
                assert there.get("description") == body.get("description"), path
            assert not [one for one in check_store(found.service.store, found.service.site) if not one.notice]
            for kind in ("Task", "PaymentNotice"):
                stored = total(found.client, f"/{kind}?_count=0")
                told = sum(path.startswith(f"/{kind}/") for path in acknowledged)
                sent = sum(body["resourceType"] == kind for load in loads for body in load.sent)
                assert told <= stored <= sent


@contextlib.contextmanager
def killable(store: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, and its address."""
    arguments = command("fhir-service", "serve", "--store", store, "--port", 0)
    with start(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(), cwd=folder
    ) as process:
        try:
            assert process.stdout
            yield process, process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.kill()
