"""Files of a bulk publication: fetched from the manifest's host only, resumed after a cut, and imported once."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from pipelines.client import bulk
from pipelines.client.bulk import TOKEN, fetch_published
from pipelines.client.pace import LONGEST_WAIT_SECONDS, RetryPauses
from pipelines.home.batch import UnreadableFile
from pipelines.importing.bulk import locked_addresses
from tests.support.serving import Answers, served

MANIFEST = "https://there.example/bulk/manifest.json"
LINES = b'{"resourceType":"Task"}\n' * 50


def manifest(*urls: str, **fields: Any) -> bytes:
    return json.dumps({"output": [{"type": "Task", "url": url} for url in urls], **fields}).encode()


class Host:
    """A host with files, which records its requests. cut: the bytes after which the first answer of a file ends."""

    def __init__(self, content: bytes, files: dict[str, bytes] | None = None, cut: int = 0) -> None:
        self.content, self.files, self.cut = content, files or {}, cut
        self.asked: list[httpx.Request] = []
        self.etag = '"v1"'

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        name = request.url.path.rpartition("/")[2]
        if name == "manifest.json":
            return httpx.Response(200, content=self.content)
        if name not in self.files:
            return httpx.Response(404)
        return self._file(request, self.files[name])

    def _file(self, request: httpx.Request, body: bytes) -> httpx.Response:
        start, status = 0, 200
        if request.headers.get("if-range") == self.etag:
            start, status = int(request.headers["range"].removeprefix("bytes=").rstrip("-")), 206
        rest = body[start:]
        headers = {"etag": self.etag, "content-length": str(len(rest))}
        if status == 206:
            headers["content-range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        sent = rest[: self.cut] if self.cut else rest
        self.cut = 0
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(sent))


def fetched(host: Callable[[httpx.Request], httpx.Response], folder: Path, **environ: str) -> list[Path]:
    return fetch_published(MANIFEST, folder, environ, transport=httpx.MockTransport(host))


def test_files_of_importable_types_are_fetched_with_the_token_of_the_target(tmp_path: Path) -> None:
    """CLI-IMPORT-13"""
    said = json.loads(manifest("a.ndjson", "https://there.example/b", requiresAccessToken=True))
    said["output"].insert(0, {"type": "Patient", "url": "https://elsewhere.example/p"})
    host = Host(json.dumps(said).encode(), {"a.ndjson": LINES, "b": LINES})
    files = fetched(host, tmp_path / "bulk", **{TOKEN: "t-1"})
    assert [file.read_bytes() for file in files] == [LINES, LINES]
    assert [file.name.partition("-")[0] for file in files] == ["tasks", "tasks"]
    assert [(str(each.url), each.headers["authorization"]) for each in host.asked] == [
        (MANIFEST, "Bearer t-1"),
        ("https://there.example/bulk/a.ndjson", "Bearer t-1"),
        ("https://there.example/b", "Bearer t-1"),
    ]
    fetched(host, tmp_path / "bulk", **{TOKEN: "t-1"})
    assert len(host.asked) == 4, "what is there whole is not fetched again"


def test_a_download_that_was_cut_off_continues_where_it_ended(tmp_path: Path) -> None:
    """CLI-IMPORT-13"""
    host = Host(manifest("a"), {"a": LINES}, cut=100)
    [file] = fetched(host, tmp_path)
    assert file.read_bytes() == LINES
    assert [each.headers.get("range") for each in host.asked] == [None, None, "bytes=100-"]


def test_a_file_that_changed_meanwhile_is_fetched_anew(tmp_path: Path) -> None:
    """CLI-IMPORT-13: no file is put together from two versions."""
    host = Host(manifest("a"), {"a": LINES})
    [file] = fetched(host, tmp_path)
    file.rename(part := file.with_suffix(".part"))
    part.write_bytes(LINES[:100])
    file.with_suffix(".etag").write_text('"\\"v0\\""')
    host.files["a"] = LINES.upper()
    assert fetched(host, tmp_path)[0].read_bytes() == LINES.upper()


BAD: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"<html>", "the manifest is not JSON"),
    "no object": (b"[]", "the manifest has no list `output`"),
    "no list": (b'{"output": {}}', "the manifest has no list `output`"),
    "no address": (b'{"output": [{"type": "Task"}]}', "output[0] of the manifest has no `type` and `url`"),
    "no file": (b'{"output": []}', "the manifest names no file of PaymentNotice, QuestionnaireResponse, Task"),
    "a token": (manifest("a", requiresAccessToken=True), f"the files of the manifest want a token: set {TOKEN}"),
    "another host": (manifest("https://other.example/a"), "output[0] of the manifest leads to another host"),
    "another port": (manifest("https://there.example:444/a"), "output[0] of the manifest leads to another host"),
    "without TLS": (manifest("http://there.example/a"), "output[0] of the manifest leads to another host"),
    "a user": (manifest("https://me@there.example/a"), "output[0] of the manifest leads to another host"),
    "a file of here": (manifest("file:///etc/passwd"), "output[0] of the manifest leads to another host"),
    "no port": (manifest("https://there.example:x/a"), "output[0] of the manifest leads to another host"),
    "too many": (manifest(*["a"] * 1001), "the manifest names more than 1,000 files"),
    "large": (b" " * (4 << 20) + b"{}", "the manifest is larger than 4 MiB"),
    "a next one": (manifest("a", link=[{"relation": "next", "url": "b"}]), "the manifest goes on elsewhere (`link`)"),
    "errors": (manifest("a", error=[{"type": "OperationOutcome", "url": "e"}]), "the manifest tells of errors"),
    "no number": (b'{"output": [{"type": "Task", "url": "a", "count": "3"}]}', "is not a number of lines"),
    "gone": (manifest("missing"), "cannot be had: HTTP 404"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_unusable_manifest_ends_with_one_sentence_that_says_why(tmp_path: Path, case: str) -> None:
    """CLI-IMPORT-13"""
    content, why = BAD[case]
    with pytest.raises(UnreadableFile) as told:
        fetched(Host(content), tmp_path)
    assert why in str(told.value)
    assert len(str(told.value).splitlines()) == 1
    assert not list(tmp_path.rglob("*.ndjson"))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://there.example/manifest.json", "is http:// beyond this machine: use https://, or --insecure"),
        ("ftp://there.example/manifest.json", "is not an http:// or https:// address"),
        ("https://me:secret@there.example/m", "holds more than an address"),
        ("https://[bad/m", "the manifest's address is none"),
        ("https://there.example:x/m", "the manifest's address is none"),
    ],
)
def test_an_unusable_address_of_a_manifest_is_refused_with_the_reason(tmp_path: Path, url: str, why: str) -> None:
    """CLI-IMPORT-13"""
    with pytest.raises(UnreadableFile, match=why.replace("(", r"\(")) as told:
        fetch_published(url, tmp_path, {})
    assert "secret" not in str(told.value)


def test_no_redirect_is_followed(tmp_path: Path) -> None:
    """CLI-IMPORT-13: the token would go with it."""
    asked = []

    def leads_away(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(302, headers={"location": "https://other.example/"})

    with pytest.raises(UnreadableFile, match="HTTP 302, which leads elsewhere: name the address that it leads to"):
        fetched(leads_away, tmp_path, **{TOKEN: "t-1"})
    assert asked == ["there.example"]


class Busy(Host):
    """A host that asks for a pause, a number of times for each of its files."""

    def __init__(self, times: int, status: int = 429, after: str = "7") -> None:
        super().__init__(manifest("a.ndjson"), {"a.ndjson": LINES})
        self.status, self.after = status, after
        self.left = {"manifest.json": times, "a.ndjson": times}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        if not self.left[name]:
            return super().__call__(request)
        self.left[name] -= 1
        return httpx.Response(self.status, headers={"retry-after": self.after})


@pytest.mark.parametrize(("status", "after", "least"), [(429, "7", 7), (503, "", 0.1), (429, "a date", 3_000)])
def test_a_busy_host_is_asked_again_after_the_pause_that_it_asks_for(
    tmp_path: Path, status: int, after: str, least: float
) -> None:
    """CLI-IMPORT-13: an import of many files does not begin again after each."""
    pauses: list[float] = []
    soon = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    host = Busy(3, status, soon if after == "a date" else after)
    [path] = fetch_published(MANIFEST, tmp_path, {}, False, httpx.MockTransport(host), RetryPauses(sleep=pauses.append))
    assert path.read_bytes() == LINES
    assert len(pauses) == 6
    assert all(pause >= min(least, LONGEST_WAIT_SECONDS) for pause in pauses)


def test_a_host_that_stays_busy_is_given_up_in_one_sentence(tmp_path: Path) -> None:
    """CLI-IMPORT-13"""
    pauses: list[float] = []
    host = Busy(50)
    with pytest.raises(UnreadableFile, match="the manifest cannot be had: HTTP 429"):
        fetch_published(MANIFEST, tmp_path, {}, False, httpx.MockTransport(host), RetryPauses(sleep=pauses.append))
    assert len(pauses) == 6


def test_a_file_without_end_and_a_host_that_falls_silent_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLI-IMPORT-13"""

    def silent(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("manifest.json"):
            return httpx.Response(200, content=manifest("a"))
        raise httpx.ReadTimeout("", request=request)

    with pytest.raises(UnreadableFile, match=r"cannot be had whole \(no answer in time\): import it again to go on"):
        fetched(silent, tmp_path)
    monkeypatch.setattr(bulk, "MOST_BYTES", 100)
    monkeypatch.setattr(bulk, "TRIES", 1)
    for files in (["a"], ["b", "c"]):
        with pytest.raises(UnreadableFile, match="larger than 0 GiB together"):
            fetched(Host(manifest(*files), {"a": LINES, "b": LINES[:72], "c": LINES[:72]}), tmp_path)


def counting(lines: int) -> bytes:
    """Return a manifest with one file of a number of lines."""
    return json.dumps({"output": [{"type": "Task", "url": "a", "count": lines}]}).encode()


class Rest:
    """A host whose file was fetched up to byte 100. It answers `given` for the rest, and then the whole file."""

    def __init__(self, folder: Path, given: str, body: bytes = LINES[100:], etag: str = '"v1"') -> None:
        self.headers, self.body, self.asked = {"content-range": given, "etag": etag}, body, list[str | None]()
        [file] = fetched(Host(manifest("a"), {"a": LINES}), folder)
        file.rename(part := file.with_suffix(".part"))
        part.write_bytes(LINES[:100])
        file.with_suffix(".etag").write_text('"\\"v1\\""')

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("manifest.json"):
            return httpx.Response(200, content=manifest("a"))
        self.asked.append(request.headers.get("range"))
        if "range" in request.headers:
            return httpx.Response(206, headers=self.headers, stream=httpx.ByteStream(self.body))
        headers = {"content-length": str(len(LINES))}
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(LINES))


SIZE = len(LINES)


@pytest.mark.parametrize(
    ("given", "etag"),
    [
        ("", '"v1"'),
        (f"bytes 100-{SIZE - 1}/*", '"v1"'),
        (f"bytes 100-{SIZE - 2}/{SIZE}", '"v1"'),
        (f"bytes 100-{SIZE - 1}/{SIZE + 24}", '"v1"'),
        (f"bytes 1000-{SIZE - 1}/{SIZE}", '"v1"'),
        (f"bytes 100-99/{SIZE}", '"v1"'),
        (f"bytes 100-{SIZE - 1}/{SIZE}", '"v2"'),
    ],
)
def test_a_file_is_fetched_again_if_the_answer_for_its_rest_is_not_the_rest(
    tmp_path: Path, given: str, etag: str
) -> None:
    """CLI-IMPORT-13: otherwise a part would be taken for the whole."""
    host = Rest(tmp_path, given, b"x" * (SIZE - 100), etag)
    assert fetched(host, tmp_path)[0].read_bytes() == LINES
    assert host.asked == ["bytes=100-", None]


def test_a_remainder_that_is_too_short_or_too_long_is_no_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLI-IMPORT-13"""
    monkeypatch.setattr(bulk, "TRIES", 1)
    right = f"bytes 100-{SIZE - 1}/{SIZE}"
    with pytest.raises(UnreadableFile, match=r"cannot be had whole \(it ends early\)"):
        fetched(Rest(tmp_path, right, LINES[100:300]), tmp_path)
    with pytest.raises(UnreadableFile, match="it is longer than its host says"):
        fetched(Rest(tmp_path / "long", right, LINES), tmp_path / "long")
    assert not list(tmp_path.rglob("*.ndjson"))


def test_a_partial_answer_that_was_not_asked_for_is_refused(tmp_path: Path) -> None:
    """CLI-IMPORT-13"""

    def partly(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("manifest.json"):
            return httpx.Response(200, content=manifest("a"))
        return httpx.Response(206, headers={"content-range": f"bytes 0-23/{SIZE}"}, content=LINES[:24])

    with pytest.raises(UnreadableFile, match="cannot be had: HTTP 206"):
        fetched(partly, tmp_path)


@pytest.mark.parametrize(
    ("content", "body", "headers", "why"),
    [
        (counting(50), LINES, {}, ""),
        (counting(50), LINES[:-24], {}, "it ends early"),
        (counting(50), LINES[:-2], {}, "it ends early"),
        (counting(49), LINES, {}, "it has 50 lines, and the manifest counts 49"),
        (counting(50), LINES[:-24], {"content-length": str(SIZE - 24)}, "it has 49 lines, and the manifest counts 50"),
        (counting(50), LINES[:-1] + b"\n\n", {"content-length": str(SIZE + 1)}, ""),
        (counting(0), b"", {"content-length": "0"}, ""),
        (manifest("a"), LINES, {"transfer-encoding": "chunked"}, ""),
        (manifest("a"), LINES, {}, "neither its host nor the manifest says how long it is"),
    ],
)
def test_a_file_is_whole_only_where_something_says_so(
    tmp_path: Path, content: bytes, body: bytes, headers: dict[str, str], why: str
) -> None:
    """CLI-IMPORT-13: the end of a connection does not prove the end of a file."""

    def host(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("manifest.json"):
            return httpx.Response(200, content=content)
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(body))

    if why:
        with pytest.raises(UnreadableFile) as told:
            fetched(host, tmp_path)
        assert why in str(told.value)
        assert not list(tmp_path.rglob("*.ndjson"))
    else:
        assert fetched(host, tmp_path)[0].read_bytes() == body


def test_a_chunked_answer_that_ends_early_is_not_whole(tmp_path: Path) -> None:
    """CLI-IMPORT-13: the client library reports it."""
    chunk = b"%x\r\n%s\r\n" % (SIZE, LINES)

    class Cut(Answers):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            is_manifest = self.path.endswith("manifest.json")
            body = manifest("a") if is_manifest else chunk
            self.answer(200, body, **({} if is_manifest else {"transfer_encoding": "chunked"}))
            self.close_connection = not is_manifest

    with (
        served(Cut) as address,
        pytest.raises(UnreadableFile, match=r"cannot be had whole \(the connection was closed, or"),
    ):
        fetch_published(f"{address}/manifest.json", tmp_path, {})
    assert not list(tmp_path.rglob("*.ndjson"))


def test_files_of_another_version_of_the_manifest_are_removed(tmp_path: Path) -> None:
    """CLI-IMPORT-13: otherwise patient data of a former publication would stay for ever."""
    fetched(Host(manifest("a", "b"), {"a": LINES, "b": LINES}), tmp_path)
    (tmp_path / "tasks-bulk-0123456789ab-0.part").write_bytes(LINES)
    files = fetched(Host(counting(50), {"a": LINES}), tmp_path)
    assert list(tmp_path.iterdir()) == files


def test_a_second_import_from_a_bulk_address_is_refused_while_the_first_one_runs(tmp_path: Path) -> None:
    """CLI-IMPORT-13"""
    with locked_addresses(tmp_path, [MANIFEST, MANIFEST]):
        with (
            pytest.raises(UnreadableFile, match="another import from this address is running"),
            locked_addresses(tmp_path, [MANIFEST]),
        ):
            pass
        with locked_addresses(tmp_path, [f"{MANIFEST}2"]):
            pass
    with locked_addresses(tmp_path, [MANIFEST]):
        pass


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_publication_of_others_is_imported_once(home: Path, chartferry: Any, target: Any, tmp_path: Path) -> None:
    """CLI-IMPORT-13: a second import creates nothing, and no copy is left outside of its batch."""
    there = tmp_path / "there"
    there.mkdir()
    task: dict[str, Any] = {
        "resourceType": "Task",
        "id": "t1",
        "status": "requested",
        "intent": "unknown",
        "description": "call back",
    }
    task |= {"requester": {"reference": "Practitioner/d1"}, "for": {"reference": "Patient/p1"}}
    (there / "Task.ndjson").write_text("".join(json.dumps(task | {"id": f"t{n}"}) + "\n" for n in range(3)))
    output = [{"type": "Task", "url": "Task.ndjson"}, {"type": "Patient", "url": "Patient.ndjson"}]
    (there / "manifest.json").write_text(json.dumps({"output": output}))
    with served(partial(Quiet, directory=there)) as address:
        code, out, err = chartferry("import", "--json", f"{address}/manifest.json")
        found = json.loads(out)
        assert (code, found["totals"]["created"]) == (0, 3), err
        assert [batch["feed"] for batch in found["batches"]] == ["tasks"]
        assert [path.suffix for path in (home / "bulk").rglob("*")] == [".lock"]
        code, out, _ = chartferry("import", "--json", f"{address}/manifest.json")
        assert (code, json.loads(out)["totals"]["created"]) == (0, 0)
        code, _, err = chartferry("import", f"{address}/nothing.json")
    assert (code, err) == (4, "chartferry: the manifest cannot be had: HTTP 404\n")


@pytest.mark.parametrize("trickles", ["manifest.json", "a.ndjson"])
def test_a_file_that_arrives_a_byte_at_a_time_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trickles: str
) -> None:
    """Each single byte arrives in time."""
    over = Event()

    class Host(Answers):
        def do_GET(self) -> None:
            is_late, name = self.path.endswith(trickles), self.path.rpartition("/")[2]
            content = LINES if name == "a.ndjson" else manifest("a.ndjson")
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            for at in range(len(content)) if is_late else ():
                if over.wait(0.02):
                    return
                self.wfile.write(content[at : at + 1])
            if not is_late:
                self.wfile.write(content)

    for name in ("MANIFEST", "BLOCK"):
        monkeypatch.setattr(bulk, f"SECONDS_OF_A_{name}", 0.3)
    with served(Host) as url, pytest.raises(UnreadableFile, match=r"its answer did not end within 0\.3 seconds"):
        fetch_published(f"{url}/manifest.json", tmp_path, {})
    over.set()
