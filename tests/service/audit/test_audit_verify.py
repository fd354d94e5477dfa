"""`audit verify`: what was changed, cut off or removed since it was written, and what is whole."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fhir_service.__main__ import main
from fhir_service.audit.chain import ChainedFile, FileHead, examine, files_of, head_file
from tests.conftest import Running
from tests.support.audits import READ, audit_of, lines, verify, written
from tests.support.bodies import send, task


def test_verify_finds_nothing_wrong_with_whole_chains(fresh_service: Running) -> None:
    """EXTRA-OPS-07: records of one request are chained one by one too."""
    fresh_service.client.get("/Task")
    send(fresh_service.client, [{"resource": task(n), "request": {"method": "POST", "url": "Task"}} for n in range(3)])
    done = verify(audit_of(fresh_service))
    assert done.exit_code == 0, done.output
    assert re.search(r": 4 records; ends with [0-9a-f]{64}\nnothing wrong\n\Z", done.output)


def change(path: Path, at: int) -> None:
    found = lines(path)
    found[at] = re.sub(rb'"n":\d', b'"n":0', found[at])
    path.write_bytes(b"".join(found))


def remove(path: Path, at: int) -> None:
    found = lines(path)
    del found[at]
    path.write_bytes(b"".join(found))


def cut(path: Path, at: int) -> None:
    found = lines(path)
    found[at] = found[at][:9] + (b"\n" if at + 1 < len(found) else b"")
    path.write_bytes(b"".join(found))


def swap(path: Path, at: int) -> None:
    found = lines(path)
    found[at - 1], found[at] = found[at], found[at - 1]
    path.write_bytes(b"".join(found))


def add(path: Path, at: int) -> None:
    found = lines(path)
    path.write_bytes(b"".join([*found[:at], b'{"n":9}\n', *found[at:]]))


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("damage", [change, remove, cut, swap, add])
@pytest.mark.parametrize("goes_on", [False, True])
def test_verify_finds_lines_that_were_cut_changed_or_removed(
    tmp_path: Path, damage: Callable[[Path, int], None], at: int, goes_on: bool
) -> None:
    """EXTRA-OPS-07: at the beginning, in the middle, and at the end; also where the service went on behind it."""
    path = tmp_path / "audit.ndjson"
    written(path, 1, 2)
    written(path, 3, 4)
    assert verify(path).exit_code == 0
    if damage in (change, swap) and at in (0, 3):
        at += 1  # the marks of the two openings hold nothing to change
    before = path.read_bytes()
    damage(path, at)
    assert path.read_bytes() != before
    if goes_on:
        written(path, 5)
    done = verify(path)
    assert done.exit_code == 4, done.output
    assert "WRONG" in done.output


def test_a_file_that_was_written_anew_with_its_head_lacks_the_hash_that_was_noted(tmp_path: Path) -> None:
    """EXTRA-OPS-07: a shorter chain holds by itself."""
    path = tmp_path / "audit.ndjson"
    written(path, 1, 2)
    noted = verify(path).output.partition("ends with ")[2][:64]
    written(path, 3)
    assert verify(path, "--noted", noted).exit_code == 0
    path.unlink()
    path.with_name("audit.ndjson.head").unlink()
    written(path, 1)
    assert verify(path).exit_code == 0
    done = verify(path, "--noted", noted)
    assert done.exit_code == 4
    assert f"WRONG  no line has the noted hash {noted}" in done.output


def test_a_hash_that_was_noted_is_found_as_people_write_it(tmp_path: Path) -> None:
    """EXTRA-OPS-07: and of an audit without a record, and of a file that was moved away."""
    path = tmp_path / "audit.ndjson"

    def last() -> str:
        return verify(path).output.partition("ends with ")[2][:64]

    path.touch()
    nothing = last()
    assert verify(path, "--noted", nothing).exit_code == 0
    written(path, 1, 2)
    noted = last()
    for given in (noted.upper(), f" {noted} ", nothing):
        assert verify(path, "--noted", given).exit_code == 0
    for no_hash in (noted[:12], f"{noted}0", "", "audit"):
        done = verify(path, "--noted", no_hash)
        assert done.exit_code == 2
        assert "is not a hash" in done.output
    path.rename(tmp_path / "former.ndjson")
    written(path, 3)
    for former in ((), (tmp_path / "former.ndjson",)):
        assert "no line has the noted hash" not in verify(path, "--noted", noted, *former).output
    assert verify(path, "--noted", noted, tmp_path / "former.ndjson").exit_code == 0


def test_a_file_or_a_head_that_is_gone_is_found(tmp_path: Path) -> None:
    """EXTRA-OPS-07."""
    path = tmp_path / "audit.ndjson"
    written(path, 1, 2)
    head = path.with_name("audit.ndjson.head")
    kept = head.read_bytes()
    head.unlink()
    assert verify(path).exit_code == 4
    head.write_bytes(kept)
    assert verify(path).exit_code == 0
    path.unlink()
    assert verify(path).exit_code == 4
    written(path, 3)
    assert verify(path).exit_code == 4


def test_a_new_file_carries_the_head_of_the_one_before(tmp_path: Path) -> None:
    """EXTRA-OPS-07: files that were moved away are verified with it, moved while a process writes or not."""
    path, first, second = tmp_path / "audit.ndjson", tmp_path / "audit.1", tmp_path / "audit.2"
    written(path, 1, 2)
    path.rename(first)
    file = ChainedFile(path)
    file.append([b'{"n":3}'], keep=True)
    path.rename(second)
    file.append([b'{"n":4}'], keep=True)
    assert [record["n"] for record in map(json.loads, lines(path)) if "n" in record] == [4]
    assert verify(path, first, second).exit_code == 0
    assert verify(path).exit_code == 4
    assert verify(path, second).exit_code == 4
    remove(second, 1)
    assert verify(path, first, second).exit_code == 4


def test_lines_removed_at_the_end_of_a_file_that_was_moved_away_are_found(tmp_path: Path) -> None:
    """EXTRA-OPS-07: no file follows its present last line. The file that followed was emptied, too."""
    path, former = tmp_path / "audit.ndjson", tmp_path / "audit.1"
    written(path, 1, 2)
    path.rename(former)
    head_file(path).unlink()
    remove(former, 2)
    [found] = examine([], [former])
    assert found.wrong == ["no named file follows it: lines at its end may be missing"]


def test_a_file_that_is_emptied_while_a_process_writes_has_the_head_of_what_it_holds(tmp_path: Path) -> None:
    """EXTRA-OPS-07: as programs do that rotate logs by a copy of them."""
    path = tmp_path / "audit.ndjson"
    file = ChainedFile(path)
    file.append([b'{"n":1}', b'{"n":2}'], keep=True)
    copy = tmp_path / "audit.1"
    copy.write_bytes(path.read_bytes())
    os.truncate(path, 0)
    file.append([b'{"n":3}'], keep=True)
    assert verify(path, copy).exit_code == 0
    assert verify(path).exit_code == 4


def test_a_gap_in_the_audit_is_marked_even_if_no_record_waited(tmp_path: Path) -> None:
    """EXTRA-OPS-07: the records of reads that were withheld are not written later."""
    full = [False, True, False]

    def fails(file: int, data: bytes) -> int:
        if full.pop(0):
            raise OSError(28, "No space left on device")
        return os.write(file, data)

    file = ChainedFile(tmp_path / "audit.ndjson", fails)
    file.append([b'{"n":1}'], keep=True)
    with pytest.raises(OSError, match="No space"):
        file.append([b'{"n":2}'], keep=False)
    file.append([b'{"n":3}'], keep=True)
    said = [json.loads(line) for line in lines(tmp_path / "audit.ndjson")]
    assert [record.get("n", record.get("chain")) for record in said] == ["goes on", 1, "goes on", 3]


def test_audit_lines_written_before_the_chain_began_are_accepted_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "audit.ndjson"
    path.write_bytes(b'{"n":1}\n{"n":2}\n{"n":3')
    written(path, 4, 5)
    done = verify(path)
    assert done.exit_code == 0
    assert "2 records, 2 from before the chain" in done.output
    assert "notice  line 3 is not complete" in done.output


def test_a_line_that_a_kill_cut_off_costs_no_other(tmp_path: Path) -> None:
    """The record after it is found, and the chain continues over it."""
    path = tmp_path / "audit.ndjson"
    written(path, 1, 2)
    with path.open("ab") as file:
        file.write(b'{"n":3,"pa')
    written(path, 4)
    assert [record["n"] for record in map(json.loads, lines(path)[:3] + lines(path)[4:]) if "n" in record] == [1, 2, 4]
    done = verify(path)
    assert done.exit_code == 0
    assert "notice  line 4 is not complete" in done.output


def test_each_process_has_a_file_and_a_chain_of_its_own(tmp_path: Path) -> None:
    """One after another they take the same file; at the same time the second takes another, and both are read."""
    path = tmp_path / "audit.ndjson"
    one, two = ChainedFile(path), ChainedFile(path)
    for number in range(3):
        one.append([b'{"time":"%d","by":1}' % (2 * number)], keep=True)
        two.append([b'{"time":"%d","by":2}' % (2 * number + 1)], keep=True)
    assert files_of(path) == [path, tmp_path / "audit.2.ndjson"]
    assert [len(lines(found)) for found in files_of(path)] == [4, 4]
    shown = CliRunner(env={"FHIR_SERVICE_AUDIT": str(path), "FHIR_SERVICE_STORE": "x"}).invoke(main, ["audit"])
    assert [json.loads(line)["by"] for line in shown.output.splitlines()] == [1, 2, 1, 2, 1, 2]
    assert verify(path).exit_code == 0
    remove(tmp_path / "audit.2.ndjson", 2)
    assert verify(path).exit_code == 4


def test_the_chain_costs_one_write_for_a_group(tmp_path: Path) -> None:
    """However many records a request leaves, they go out in one write."""
    calls: list[int] = []

    def counted(file: int, data: bytes) -> int:
        calls.append(len(data))
        return os.write(file, data)

    file = ChainedFile(tmp_path / "audit.ndjson", counted)
    file.flush()
    calls.clear()
    file.append([READ] * 500, keep=True)
    assert len(calls) == 1
    assert FileHead.of(tmp_path / "audit.ndjson") == FileHead(
        (tmp_path / "audit.ndjson").stat().st_size, examine(files_of(tmp_path / "audit.ndjson"), [])[0].ends
    )
