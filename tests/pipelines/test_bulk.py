"""Files that others publish in bulk: fetched from the manifest's host alone, gone on with, and imported once."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipelines.client import bulk
from pipelines.client.bulk import TOKEN, fetch_published
from pipelines.home.batch import Unreadable

MANIFEST = "https://there.example/bulk/manifest.json"
LINES = b'{"resourceType":"Task"}\n' * 50


def manifest(*urls: str, **fields: Any) -> bytes:
    return json.dumps({"output": [{"type": "Task", "url": url} for url in urls], **fields}).encode()


class Host:
    """A host with files, and a record of what was asked for. cut: bytes after which a file's first answer ends."""

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


def test_what_can_be_imported_is_fetched_with_the_token(tmp_path: Path) -> None:
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


def test_a_file_that_was_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    """CLI-IMPORT-13"""
    host = Host(manifest("a"), {"a": LINES}, cut=100)
    [file] = fetched(host, tmp_path)
    assert file.read_bytes() == LINES
    assert [each.headers.get("range") for each in host.asked] == [None, None, "bytes=100-"]


def test_a_file_that_changed_meanwhile_is_fetched_anew(tmp_path: Path) -> None:
    """CLI-IMPORT-13: no file is made of two."""
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
    "gone": (manifest("missing"), "cannot be had: HTTP 404"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_manifest_that_cannot_be_used_is_said_in_one_sentence(tmp_path: Path, case: str) -> None:
    """CLI-IMPORT-13"""
    content, why = BAD[case]
    with pytest.raises(Unreadable) as told:
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
def test_an_address_that_nothing_is_fetched_from_is_said(tmp_path: Path, url: str, why: str) -> None:
    """CLI-IMPORT-13"""
    with pytest.raises(Unreadable, match=why.replace("(", r"\(")) as told:
        fetch_published(url, tmp_path, {})
    assert "secret" not in str(told.value)


def test_no_redirect_is_followed(tmp_path: Path) -> None:
    """CLI-IMPORT-13: the token would go with it."""
    asked = []

    def leads_away(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(302, headers={"location": "https://other.example/"})

    with pytest.raises(Unreadable, match="HTTP 302, which leads elsewhere: name the address that it leads to"):
        fetched(leads_away, tmp_path, **{TOKEN: "t-1"})
    assert asked == ["there.example"]


def test_a_file_without_end_and_a_host_that_falls_silent_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLI-IMPORT-13"""

    def silent(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("manifest.json"):
            return httpx.Response(200, content=manifest("a"))
        raise httpx.ReadTimeout("", request=request)

    with pytest.raises(Unreadable, match=r"cannot be had whole \(ReadTimeout\): import it again to go on"):
        fetched(silent, tmp_path)
    monkeypatch.setattr(bulk, "MOST_BYTES", 100)
    with pytest.raises(Unreadable, match="is larger than"):
        fetched(Host(manifest("a"), {"a": LINES}), tmp_path)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_publication_of_others_is_imported_once(home: Path, chartferry: Any, target: Any, tmp_path: Path) -> None:
    """CLI-IMPORT-13: again it creates nothing, and nothing of it is left outside of its batch."""
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
    with serving(there) as address:
        code, out, err = chartferry("import", "--json", f"{address}/manifest.json")
        found = json.loads(out)
        assert (code, found["totals"]["created"]) == (0, 3), err
        assert [batch["feed"] for batch in found["batches"]] == ["tasks"]
        assert not list((home / "bulk").glob("*"))
        code, out, _ = chartferry("import", "--json", f"{address}/manifest.json")
        assert (code, json.loads(out)["totals"]["created"]) == (0, 0)
        code, _, err = chartferry("import", f"{address}/nothing.json")
    assert (code, err) == (4, "chartferry: the manifest cannot be had: HTTP 404\n")
