"""`fhir-service` as its users start it: processes, files, exit codes, and the door of a running service."""

import contextlib
import errno
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fhir_service.admin.running_service import run_file
from tests.conftest import WORLD
from tests.support import loopback
from tests.support.called import CLEAN, called, run, serving


@pytest.fixture
def store(tmp_path):
    return tmp_path / "s.duckdb"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A running service over a store with the small reference data: (store, address)."""
    store = tmp_path_factory.mktemp("served") / "s.duckdb"
    assert run("load", "--store", store, WORLD).returncode == 0
    with serving("--store", store, "--port", 0) as (_, line):
        yield store, line.removeprefix("listening on ").strip()


def token(url, client, **more):
    form = {"grant_type": "client_credentials"} | {k: client[k] for k in ("client_id", "client_secret")} | more
    return loopback.post(f"{url}/auth/token", data=form)


# --- serve ----------------------------------------------------------------------------------------


def test_serve_makes_the_store_says_where_it_listens_and_ends_well_on_sigterm(store):
    """CLI-SVC-01, CLI-SVC-02, CLI-SVC-03, AUTH-24"""
    with serving("--store", store, "--port", 0) as (process, line):
        url = line.removeprefix("listening on ").strip()
        assert line == f"listening on {url}\n"
        assert url.startswith("http://127.0.0.1:")
        assert loopback.get(f"{url}/health").status_code == 200
        assert loopback.get(f"{url}/metadata").json()["implementation"]["url"] == url
        assert loopback.get(f"{url}/.well-known/smart-configuration").json()["token_endpoint"] == f"{url}/auth/token"
        note = json.loads(run_file(store).read_text())
        assert set(note) == {"pid", "url", "door"}
        assert (note["pid"], note["url"]) == (process.pid, url)
        assert stat.S_IMODE(run_file(store).stat().st_mode) == stat.S_IMODE(store.stat().st_mode) == 0o600
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stdout.read() == ""
        logged = [json.loads(line)["path"] for line in process.stderr.read().splitlines()]
        assert logged == ["/health", "/metadata", "/.well-known/smart-configuration"]
    assert not run_file(store).exists()


def test_serve_says_at_its_start_that_the_audit_cannot_be_written(store):
    audit = store.with_name("s.duckdb.audit.ndjson")
    audit.mkdir()
    with serving("--store", store, "--port", 0) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert f"the audit {audit} cannot be written: Is a directory" in process.stderr.read()


def test_serve_ends_with_the_pipe_of_its_parent(store):
    with serving("--store", store, "--port", 0, "--until-stdin-closes", stdin=subprocess.PIPE) as (process, line):
        assert line.startswith("listening on ")
        process.stdin.close()
        assert process.wait(30) == 0
        process.stdin = None
    assert not run_file(store).exists()


def test_a_request_under_way_is_finished_before_the_end(store):
    """CLI-SVC-03: the body is still coming when SIGTERM arrives."""
    client = json.loads(run("client", "add", "--store", store, "--name", "late").stdout)
    with serving("--store", store, "--port", 0) as (process, line):
        host = line.removeprefix("listening on http://").strip()
        connection = http.client.HTTPConnection(host, timeout=30)
        form = f"grant_type=client_credentials&client_id={client['client_id']}&client_secret={client['client_secret']}"
        connection.putrequest("POST", "/auth/token")
        connection.putheader("content-type", "application/x-www-form-urlencoded")
        connection.putheader("content-length", str(len(form)))
        connection.endheaders(form[:10].encode())
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(tuple(host.split(":")), timeout=5)
        connection.send(form[10:].encode())
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["token_type"]) == (200, "Bearer")
        connection.close()
        assert process.wait(30) == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "until_stdin_closes",
    [[], pytest.param(["--until-stdin-closes"], marks=pytest.mark.long)],
    ids=["alone", "for a parent"],
)
def test_serve_ends_well_however_often_it_is_asked_to(store, until_stdin_closes):
    """CLI-SVC-03: also while it closes its store, and without warnings of DuckDB's library about leaked objects.

    The process is started by `subprocess`: a forked one ends in another way.
    """
    asked = [sys.executable, "-m", "fhir_service", "serve", "--store", str(store), "--port", "0", *until_stdin_closes]
    pipe = subprocess.PIPE
    with subprocess.Popen(asked, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=CLEAN) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline().startswith("listening on")
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.001)
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert not run_file(store).exists()


def test_an_address_in_use_is_reported_in_one_line(store):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("serve", "--store", store, "--port", port)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"Error: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


def test_a_store_that_another_process_holds_is_named_and_left_alone(served, tmp_path):
    """CLI-SVC-11: with the run file gone, the commands cannot go through the service."""
    store, _ = served
    note = json.loads(run_file(store).read_text())
    hidden = tmp_path / "hidden.run"
    run_file(store).rename(hidden)
    before = store.stat()
    try:
        commands = [
            ("serve", "--port", 0),
            ("check",),
            ("client", "list"),
            ("client", "add", "--name", "x"),
            ("audit",),
        ]
        with ThreadPoolExecutor(len(commands)) as pool:  # the commands wait some seconds for it
            results = list(pool.map(lambda command: run(*command, "--store", store), commands))
        for result in results:
            assert (result.returncode, result.stdout) == (5, "")
            assert result.stderr.count("\n") == 1
            assert f"process {note['pid']}" in result.stderr
        assert (store.stat().st_mtime_ns, store.stat().st_size) == (before.st_mtime_ns, before.st_size)
    finally:
        hidden.rename(run_file(store))


def test_a_command_waits_for_a_service_that_starts(served, tmp_path):
    """CLI-SVC-11: a starting service holds its store before it answers. A command waits for that."""
    store, _ = served
    hidden = run_file(store).rename(tmp_path / "hidden.run")
    asked = [sys.executable, "-m", "fhir_service", "client", "list", "--store", str(store)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, env=CLEAN) as process:
        time.sleep(1.5)
        hidden.rename(run_file(store))
        assert process.wait(60) == 0


def test_a_service_waits_for_a_store_that_a_command_has_for_a_moment(store):
    """CLI-SVC-07: a supervisor that restarts it may be in time for the end of the one before."""
    assert run("client", "add", "--store", store, "--name", "importer").returncode == 0
    holds = "import duckdb, sys, time; held = duckdb.connect(sys.argv[1]); print('held', flush=True); time.sleep(4)"
    with subprocess.Popen([sys.executable, "-c", holds, str(store)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with serving("--store", store, "--port", 0) as (_, line):
            assert line.startswith("listening on "), line
            assert holder.wait(30) == 0


def test_a_second_service_over_a_store_names_the_first(served):
    """CLI-SVC-11: also when the port is taken as well."""
    store, url = served
    result = run("serve", "--store", store, "--port", url.rpartition(":")[2])
    assert result.returncode == 5
    assert f"process {json.loads(run_file(store).read_text())['pid']}" in result.stderr
    assert loopback.get(f"{url}/health").status_code == 200
    assert run_file(store).exists()


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /Task HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        pytest.param(
            b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000 + b"\r\n", marks=pytest.mark.long
        ),  # for five seconds
        b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000,
        b"GET /" + b"y" * 100_000,
    ],
    ids=["nonsense", "negative length", "path", "many headers", "endless header", "endless path"],
)
def test_bytes_that_are_not_http_are_a_bad_request_in_json(served, sent):
    """COMMON-01: it takes no memory either: the head of a request is bounded."""
    host, port = served[1].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(sent)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
    if answer or len(sent) < 1000:  # a large head may be cut off before its answer arrives
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 4")
        assert json.loads(body)["issue"][0]["severity"] == "error"
    assert loopback.get(f"{served[1]}/health").status_code == 200


# --- through the running service ------------------------------------------------------------------


def test_clients_are_added_listed_and_revoked_while_the_service_runs(served):
    """CLI-SVC-04, CLI-SVC-08, CLI-SVC-09, AUTH-11, AUTH-15"""
    store, url = served
    added = run("client", "add", "--store", store, "--name", "importer")
    client = json.loads(added.stdout)
    assert (added.returncode, list(client)) == (0, ["client_id", "client_secret", "scope"])
    assert client["scope"] == "system/*.cruds"
    bearer = {"authorization": f"Bearer {token(url, client).json()['access_token']}"}
    assert loopback.get(f"{url}/Task", headers=bearer).status_code == 200
    for form in ((), ("--json",)):
        listed = run("client", "list", "--store", store, *form).stdout
        assert client["client_id"] in listed
        assert "importer" in listed
        assert client["client_secret"] not in listed
    revoked = run("client", "revoke", "--store", store, client["client_id"])
    assert (revoked.returncode, revoked.stdout) == (0, f"revoked {client['client_id']}\n")
    assert loopback.get(f"{url}/Task", headers=bearer).status_code == 401
    assert token(url, client).json()["error"] == "invalid_client"


def test_reference_data_is_loaded_and_the_store_checked_while_the_service_runs(served, tmp_path):
    """CLI-SVC-04, CLI-SVC-05, CLI-SVC-10"""
    store, url = served
    (tmp_path / "p.ndjson").write_text('{"resourceType": "Practitioner", "id": "new-one", "name": [{"family": "N"}]}\n')
    result = run("load", "--store", store, "p.ndjson", cwd=tmp_path)
    assert result.returncode == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["type", "created", "unchanged", "updated", "refused", "unresolved"],
        ["Practitioner", "1", "0", "0", "0", "0"],
    ]
    client = json.loads(
        run("client", "add", "--store", store, "--name", "tasks", "--scope", "system/Task.cruds").stdout
    )
    bearer = {"authorization": f"Bearer {token(url, client).json()['access_token']}"}
    task: dict = {"resourceType": "Task", "status": "requested", "intent": "unknown", "description": "call back"}
    task["requester"] = {"reference": "Practitioner/new-one"}
    assert loopback.post(f"{url}/Task", json=task, headers=bearer).status_code == 201
    assert loopback.get(f"{url}/PaymentNotice", headers=bearer).status_code == 403
    checked = run("check", "--store", store)
    assert (checked.returncode, checked.stdout) == (0, "nothing wrong, 0 notices\n")


def test_errors_come_through_the_door_as_they_are(served, tmp_path):
    store, _ = served
    for command, says in [
        (("client", "revoke", "nobody"), "there is no client nobody"),
        (("client", "add", "--name", "x", "--scope", "everything"), "a scope must have the form system/"),
        (("client", "add", "--name", "x", "--scope", ""), "an empty scope gives no rights"),
        (("client", "add", "--name", " "), "a client's name must have"),
        (("load", tmp_path / "nothing.ndjson"), "nothing.ndjson"),
    ]:
        result = run(*command, "--store", store)
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert says in result.stderr


def test_the_door_opens_only_for_its_secret(served):
    """Without it the door is like any path without a token."""
    store, url = served
    secret = json.loads(run_file(store).read_text())["door"]
    client = json.loads(run("client", "add", "--store", store, "--name", "curious").stdout)
    bearer = {"authorization": f"Bearer {token(url, client).json()['access_token']}"}
    wrong = ("", secret[:-1], secret + "x", "é".encode())
    attempts: list[dict] = [{}, bearer, *({"x-door": text} for text in wrong)]
    for headers in attempts:
        for path in ("check", "client-add", "nothing", ""):
            answer = loopback.post(f"{url}/_door/{path}", headers=headers, json={"name": "thief"})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert answer.json()["issue"][0]["code"] == "unknown"
    assert loopback.get(f"{url}/_door/check", headers={"x-door": secret}).status_code == 405
    assert loopback.post(f"{url}/_door/nothing", headers={"x-door": secret}, json={}).status_code == 405
    assert loopback.post(f"{url}/_door/client-list", headers={"x-door": secret}, json={}).status_code == 200
    assert "thief" not in run("client", "list", "--store", store).stdout


# --- without a service ----------------------------------------------------------------------------


def test_refused_records_are_named_in_a_file_and_the_exit_code(store, tmp_path):
    """CLI-SVC-05, CLI-SVC-06, CLI-SVC-07"""
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "e.ndjson"
    file.write_text('{"resourceType": "Encounter", "id": "e1", "status": "finished", "class": {"code": "AMB"}}\n')
    result = called("load", "--store", store, tmp_path / "in")
    refused_file = store.with_name("s.duckdb.refused.ndjson")
    assert (result.exit_code, str(refused_file) in result.stderr) == (3, True)
    (refused,) = [json.loads(line) for line in refused_file.read_text().splitlines()]
    assert list(refused) == ["file", "line", "type", "id", "problems"]
    assert (refused["file"], refused["line"], refused["type"], refused["id"]) == (str(file), 1, "Encounter", "e1")
    assert [list(problem) for problem in refused["problems"]] == [["expression", "text"]]
    elsewhere = tmp_path / "elsewhere.ndjson"
    assert called("load", "--store", store, "--refused", elsewhere, file).exit_code == 3
    assert elsewhere.read_text() == refused_file.read_text()
    file.write_text('{"resourceType": "Patient", "id": "p1"}\n')
    assert called("load", "--store", store, file).exit_code == 0
    assert not refused_file.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.ndjson", b"Dear Quill,\n"),
        ("patients.ndjson", b"name,born\nQuill,1970-01-01\n"),
        ("patients.json", b'["Quill"]\n'),
        ("half.ndjson", b'{"name": "Quill"'),
        ("p.ndjson.gz", b"not zipped"),
    ],
)
def test_a_file_that_is_no_reference_data_is_reported_in_one_line_and_loads_nothing(store, tmp_path, name, content):
    """CLI-SVC-05, CLI-SVC-07: it is a mistake in the command. The refused records of an earlier load stay listed."""
    refused_file = store.with_name("s.duckdb.refused.ndjson")
    refused_file.write_text("earlier\n")
    file = tmp_path / name
    file.write_bytes(content)
    result = called("load", "--store", store, file)
    assert (result.exit_code, str(file) in result.stderr, result.stderr.count("\n")) == (2, True, 1)
    assert "nothing is loaded" in result.stderr
    assert "Quill" not in result.stderr
    assert refused_file.read_text() == "earlier\n"


def test_a_folder_within_the_reference_data_that_cannot_be_read_is_reported_in_one_line_and_nothing_is_loaded(
    store, tmp_path, monkeypatch
):
    """CLI-SVC-05: otherwise its records would be missing unseen."""
    closed, look = tmp_path / "in" / "closed", os.scandir
    closed.mkdir(parents=True)
    (tmp_path / "in" / "p.ndjson").write_text('{"resourceType": "Patient", "id": "p1"}\n')

    def scandir(path):
        if str(path) == str(closed):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", scandir)
    result = called("load", "--store", store, tmp_path / "in")
    assert (result.exit_code, result.stderr) == (2, f"Error: {closed} cannot be read; nothing is loaded\n")


def test_a_store_that_cannot_be_looked_at_is_named(store, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(store))

    monkeypatch.setattr("fhir_service.admin.actions.files", denied)
    result = called("load", "--store", store, WORLD)
    assert (result.exit_code, result.stderr) == (1, f"Error: {store}: Permission denied\n")


def test_a_program_reads_the_counts_of_a_load_as_json_whatever_a_type_looks_like(store, tmp_path):
    """CLI-SVC-05"""
    bad, foreign = tmp_path / "bad.ndjson", tmp_path / "notes.ndjson"
    bad.write_text('{"resourceType": "Patient", "id": "p1"}\n{"id": "p2"}\n{"resourceType": "Care Plan", "id": "c"}\n')
    foreign.write_text("Dear all,\nyours\n")
    result = called("load", "--store", store, "--json", "--refuse-foreign", bad, foreign)
    assert result.exit_code == 3
    said = json.loads(result.stdout)
    found = {row["type"]: (row["created"], row["refused"]) for row in said["counts"]}
    assert found == {"Patient": (1, 0), "": (0, 3)}
    assert said["refused"] == 3
    refused = [json.loads(line) for line in store.with_name("s.duckdb.refused.ndjson").read_text().splitlines()]
    assert [(each["file"], each["line"]) for each in refused] == [(str(bad), 2), (str(bad), 3), (str(foreign), 1)]


def test_a_store_in_a_folder_that_is_not_there_is_not_made(tmp_path):
    missing = tmp_path / "missing"
    result = called("client", "add", "--name", "n", "--store", missing / "x.duckdb")
    assert (result.exit_code, str(missing) in result.stderr, result.stderr.count("\n")) == (1, True, 1)
    assert not missing.exists()
    assert called("client", "add", "--name", "n", "--store", missing / "service.duckdb").exit_code == 0


def test_a_store_that_is_not_there_is_not_made_by_looking(store):
    for command in (("check",), ("client", "list"), ("client", "revoke", "x")):
        result = called(*command, "--store", store)
        assert (result.exit_code, "there is no store" in result.stderr) == (1, True)
    assert not store.exists()


def test_a_file_that_is_no_store_is_reported_in_one_line_and_left_alone(tmp_path):
    file = tmp_path / "letter.txt"
    file.write_text("Dear patient, " * 100)
    result = called("check", "--store", file)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert file.read_text() == "Dear patient, " * 100


def test_check_of_a_damaged_store_ends_with_exit_code_4(store):
    """CLI-SVC-10"""
    import duckdb

    assert called("load", "--store", store, WORLD).exit_code == 0
    with duckdb.connect(store) as connection:
        connection.execute("UPDATE account SET charged = charged + 1")
    result = called("check", "--store", store)
    assert result.exit_code == 4
    assert "WRONG  balance  Patient/" in result.stdout
    assert "nothing wrong" not in result.stdout


QUERY_INTERRUPTED = "(_ for _ in ()).throw(RuntimeError('Query interrupted'))"
"""Raises what DuckDB raises at an interrupt."""


@pytest.mark.parametrize(
    "stop",
    [*(f"os.kill(os.getpid(), {int(number)})" for number in (signal.SIGINT, signal.SIGTERM)), QUERY_INTERRUPTED],
)
def test_a_command_that_is_stopped_says_so_in_one_line_and_leaves_no_half_copy(store, tmp_path, stop):
    """CLI-SVC-01"""
    stopped = (
        "import os, sys; from fhir_service.admin import copying; from fhir_service.__main__ import main;"
        f"copying._copy_to = lambda _, part: (part.write_text(''), {stop}); main()"
    )
    run("client", "add", "--store", store, "--name", "importer")
    words = [sys.executable, "-c", stopped, "copy", "--store", str(store), str(tmp_path / "copies" / "copy.duckdb")]
    (tmp_path / "copies").mkdir()
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "fhir-service: stopped; start the same command again to finish\n"
    assert not list((tmp_path / "copies").iterdir())
