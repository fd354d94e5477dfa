"""One deployment of several clinics: a failure of one does not stop the others."""

import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.clinics import TWO, clinics_file
from tests.support.commands import load
from tests.support.payers import practice
from tests.support.standing import PARTITIONS, Standing, addresses, gone, processes_of, running_up, until


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a target that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(200)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


PAYMENTS = "payment_id,patient_id,amount,paid_on\nU-1,p1,1.00,2026-03-02\n"


def states(up: Standing, clinic: str) -> list[str]:
    """The states of the clinic's payments in Dagster; each partition is named by the clinic."""
    node = up.ask(PARTITIONS, asset=[clinic, "payments", "loaded"])["assetNodeOrError"]
    found = {
        key: state.removesuffix("Partitions")
        for state, keys in node.get("assetPartitionStatuses", {}).items()
        for key in keys
    }
    assert all(key.startswith(f"{clinic}/payments-") for key in found)
    return list(found.values())


@pytest.mark.long
def test_a_silent_target_and_a_killed_process_of_one_clinic_hold_up_no_other(tmp_path: Path, silent: str) -> None:
    """One real deployment of three clinics: a target that never answers, and a code server that is killed."""
    file = clinics_file(
        tmp_path, TWO + f'[[clinic]]\nname = "west"\nhome = "west"\nenvironment = "W_"\ntarget = "{silent}"\n'
    )
    (tmp_path / "west" / "inbox").mkdir(parents=True)
    for name in ("north", "south"):
        assert load(tmp_path / name, practice(tmp_path / f"practice-{name}", 5)).returncode == 0
    deployment = tmp_path / "all"
    with running_up(deployment, "--web-port", "0", "--clinics", str(file), W_FHIR_TOKEN="t") as process:
        found = addresses(process)
        assert {"Dagster", "north", "south", "west"} <= found.keys(), process.stderr and process.stderr.read()
        up = Standing(deployment, process, found)
        for number in range(4):
            (tmp_path / "west" / "inbox" / f"payments-{number}.csv").write_text(PAYMENTS.replace("U-1", f"W-{number}"))
        until(lambda: states(up, "west"), "a partition of the silent clinic")
        for name in ("north", "south"):
            (tmp_path / name / "inbox" / "payments-1.csv").write_text(PAYMENTS)
        for name in ("north", "south"):
            until(lambda: states(up, name) == ["materialized"], f"the file of {name}", 600)  # noqa: B023
        assert "materialized" not in states(up, "west")
        [server] = [each for each in map(psutil.Process, processes_of(tmp_path / "north")) if "code" in each.cmdline()]
        server.kill()
        (tmp_path / "south" / "inbox" / "payments-2.csv").write_text(PAYMENTS.replace("U-1", "U-2"))
        until(lambda: states(up, "south") == ["materialized"] * 2, "another file of south", 600)
        (tmp_path / "north" / "inbox" / "payments-2.csv").write_text(PAYMENTS.replace("U-1", "U-2"))
        until(lambda: states(up, "north") == ["materialized"] * 2, "another file of north", 600)
        process.send_signal(2)
        process.communicate(timeout=600)
    assert process.returncode == 0
    assert all(gone(tmp_path / name) for name in ("all", "north", "south", "west"))
