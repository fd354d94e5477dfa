"""Files that another system publishes in bulk (`$bulk-publish`): read its manifest, and fetch the files to import.

Nothing in the manifest is trusted: files are fetched only from its own host, no redirect is followed, and the token
goes nowhere else. A partly fetched file is continued if its entity tag shows that the file is unchanged. A file is
complete if one of these says so: its length, its number of lines, or the end of a chunked answer. A host that is busy
or away is asked again, after the pause that it asks for.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import orjson

from fhir_service.paths import exists
from pipelines.client.addresses import is_at, is_loopback
from pipelines.client.client import TRY_AGAIN
from pipelines.client.connections import begin, client_for, why_of
from pipelines.client.pace import PATIENT, Attempts, RetryPauses
from pipelines.client.replies import TimedOut, retry_after
from pipelines.home.batch import UnreadableFile
from pipelines.home.counted import counted
from pipelines.home.files import replace_whole, to_disk, write_whole

TOKEN = "CHARTFERRY_BULK_TOKEN"  # noqa: S105 - the name of a variable
KINDS = {"PaymentNotice": "payments", "QuestionnaireResponse": "answers", "Task": "tasks"}
"""The beginnings of files' names by type of resource. Feeds take files by these names."""
MANIFEST_BYTES = 4 << 20
MOST_FILES = 1_000
MOST_BYTES = 64 << 30
"""The most bytes of all files of a manifest together."""
BLOCK = 1 << 20
SECONDS_OF_A_MANIFEST = 120.0
SECONDS_OF_A_BLOCK = 300.0
"""Seconds for each block, since a host may send single bytes, each within the timeout."""
TRIES = 5
EARLY = "it ends early"
PLAIN = {"accept-encoding": "identity"}


@dataclass(frozen=True)
class PublishedFile:
    """A file that a manifest names. name: its local name. count: its number of lines, if the manifest says."""

    url: str
    name: str
    count: int | None


def fetch_published(
    url: str,
    folder: Path,
    environ: Mapping[str, str],
    insecure: bool = False,
    transport: httpx.BaseTransport | None = None,
    patience: RetryPauses = PATIENT,
) -> list[Path]:
    """Fetch the files of a manifest that can be imported, into a folder; return them in the manifest's order.

    Raises `UnreadableFile`. Fetched files stay, and are not fetched again while the manifest is unchanged. Only one
    process at a time may use the folder.
    """
    check_address(url, insecure)
    token = environ.get(TOKEN)
    headers = PLAIN | ({"authorization": f"Bearer {token}"} if token else {})
    with client_for(url, transport, headers=headers, timeout=60.0) as http:
        host = _Host(http, patience)
        content = _manifest(host, url)
        files = list(_files(content, url, has_token=bool(token)))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_others(folder, files)
        room = MOST_BYTES
        for file in files:
            _fetch(host, file, folder, room)
            room -= (folder / file.name).stat().st_size
    return [folder / file.name for file in files]


def check_address(url: str, insecure: bool) -> None:
    """Raise `UnreadableFile` for an address from which nothing may be fetched."""
    try:
        parts, _ = urlsplit(url), urlsplit(url).port
    except ValueError:
        raise UnreadableFile("the manifest's address is none") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UnreadableFile("the manifest's address is not an http:// or https:// address")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise UnreadableFile(
            "the manifest's address holds more than an address: leave out user, password and what follows #"
        )
    if parts.scheme == "http" and not is_loopback(url) and not insecure:
        raise UnreadableFile("the manifest's address is http:// beyond this machine: use https://, or --insecure")


@dataclass(frozen=True)
class _Host:
    """The host that publishes."""

    http: httpx.Client
    patience: RetryPauses

    @contextmanager
    def answer(self, url: str, headers: Mapping[str, str], seconds: float) -> Iterator[httpx.Response]:
        """Yield the answer to a GET. If the host stays busy or away, the last answer is yielded closed.

        seconds: the time limit until the next `begin`.
        """
        attempts = Attempts(self.patience)
        while True:
            begin(seconds)
            with self.http.stream("GET", url, headers=dict(headers)) as answer:
                if answer.status_code not in TRY_AGAIN:
                    yield answer
                    return
            if not attempts.next(retry_after(answer)):
                yield answer
                return


def _manifest(host: _Host, url: str) -> bytes:
    """Return the content of the manifest, which is small."""
    parts = []
    size = 0
    try:
        with host.answer(url, {"accept": "application/json"}, SECONDS_OF_A_MANIFEST) as answer:
            if answer.status_code != 200:
                raise UnreadableFile(f"the manifest cannot be had: HTTP {answer.status_code}{_hint(answer)}")
            for part in answer.iter_bytes():
                size += len(part)
                if size > MANIFEST_BYTES:
                    raise UnreadableFile(f"the manifest is larger than {MANIFEST_BYTES >> 20} MiB")
                parts.append(part)
    except (httpx.HTTPError, httpx.InvalidURL, TimedOut) as error:
        raise UnreadableFile(f"the manifest cannot be had ({_why(error)})") from None
    return b"".join(parts)


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, TimedOut) else why_of(error)


def _hint(answer: httpx.Response) -> str:
    if answer.is_redirect:
        return ", which leads elsewhere: name the address that it leads to"
    return f"; a token is taken from {TOKEN}" if answer.status_code in (401, 403) else ""


def _files(content: bytes, url: str, has_token: bool) -> Iterator[PublishedFile]:
    """Yield the files that can be imported. Raises `UnreadableFile` for an invalid manifest."""
    try:
        manifest = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise UnreadableFile("the manifest is not JSON") from None
    output = manifest.get("output") if isinstance(manifest, dict) else None
    if not isinstance(output, list):
        raise UnreadableFile("the manifest has no list `output`")
    if len(output) > MOST_FILES:
        raise UnreadableFile(f"the manifest names more than {MOST_FILES:,} files")
    _check_complete(manifest)
    if manifest.get("requiresAccessToken") is True and not has_token:
        raise UnreadableFile(f"the files of the manifest want a token: set {TOKEN}")
    version = hashlib.sha256(content).hexdigest()[:12]
    found = 0
    for place, each in enumerate(output):
        kind, address = (each.get("type"), each.get("url")) if isinstance(each, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(address, str):
            raise UnreadableFile(f"output[{place}] of the manifest has no `type` and `url`")
        if kind in KINDS:
            found += 1
            name = f"{KINDS[kind]}-bulk-{version}-{place}.ndjson"
            yield PublishedFile(_at_the_host(address, url, place), name, _count_of(each, place))
    if not found:
        raise UnreadableFile(f"the manifest names no file of {', '.join(KINDS)}")


def _check_complete(manifest: dict[str, Any]) -> None:
    """Raise `UnreadableFile` for a manifest that says that it is not complete."""
    links = manifest.get("link") or []
    if not isinstance(links, list) or any(
        not isinstance(each, dict) or each.get("relation") == "next" for each in links
    ):
        raise UnreadableFile("the manifest goes on elsewhere (`link`), which is not followed: have it published in one")
    if manifest.get("error"):
        raise UnreadableFile("the manifest tells of errors (`error`), so something is missing: have it published again")


def _count_of(output: dict[str, Any], place: int) -> int | None:
    count = output.get("count")
    if count is None or (type(count) is int and count >= 0):
        return count
    raise UnreadableFile(f"the `count` of output[{place}] of the manifest is not a number of lines")


def _at_the_host(address: str, manifest: str, place: int) -> str:
    try:
        whole = urljoin(manifest, address)
    except ValueError:
        whole = address
    if not is_at(whole, manifest):
        raise UnreadableFile(f"output[{place}] of the manifest leads to another host")
    return whole


def _remove_others(folder: Path, files: Sequence[PublishedFile]) -> None:
    """Remove the files of other versions of the manifest, and their parts."""
    stems = {file.name.partition(".")[0] for file in files}
    for path in folder.iterdir():
        if path.name.partition(".")[0] not in stems:
            path.unlink()


def _fetch(host: _Host, file: PublishedFile, folder: Path, room: int) -> None:
    """Fetch a file, in several tries if a connection ends early. room: the most bytes that it may have."""
    final = folder / file.name
    part, note = final.with_suffix(".part"), final.with_suffix(".etag")
    if exists(final):
        return
    why = ""
    for _ in range(TRIES):
        try:
            why = _missing(host, file, part, note, room)
        except (httpx.HTTPError, httpx.InvalidURL, TimedOut) as error:
            why = _why(error)
        if not why:
            replace_whole(part, final)
            note.unlink(missing_ok=True)
            return
    raise UnreadableFile(f"{file.name} cannot be had whole ({why}): import it again to go on")


def _missing(host: _Host, file: PublishedFile, part: Path, note: Path, room: int) -> str:
    """Fetch the missing bytes of a file. Return why it is still not whole; empty text if it is."""
    etag: str = json.loads(note.read_text()) if exists(note) and exists(part) else ""
    at = part.stat().st_size if etag else 0
    wanted = {"range": f"bytes={at}-", "if-range": etag} if at else {}
    headers = {"accept": "application/fhir+ndjson", **wanted}
    with host.answer(file.url, headers, SECONDS_OF_A_BLOCK) as answer:
        if at and (answer.status_code == 416 or not _fits(answer, at, etag)):
            note.unlink()
            return "the host answers with another part than was asked for"
        if answer.status_code not in ((200, 206) if at else (200,)):
            raise UnreadableFile(f"{file.name} cannot be had: HTTP {answer.status_code}{_hint(answer)}")
        total = _total(answer)
        is_chunked = answer.headers.get("transfer-encoding", "").strip().lower() == "chunked"
        if total is None and not is_chunked and file.count is None:
            raise UnreadableFile(
                f"{file.name} cannot be had: neither its host nor the manifest says how long it is, "
                "so a part would be taken for the whole"
            )
        if answer.status_code == 200:
            _begin(part, note, answer.headers.get("etag", ""))
        if not _take(answer, part, room if total is None else min(total, room)):
            raise UnreadableFile(
                f"{file.name} cannot be had: it is longer than its host says, "
                f"or the files of the manifest are larger than {MOST_BYTES >> 30} GiB together"
            )
    return _end_is_missing(file, part, total, is_chunked)


def _fits(answer: httpx.Response, at: int, etag: str) -> bool:
    """True if a partial answer has the rest of the unchanged file, from `at` to its end."""
    if answer.status_code != 206:
        return True
    ends = _range(answer)
    return ends is not None and ends[0] == at and answer.headers.get("etag", etag) == etag


def _range(answer: httpx.Response) -> tuple[int, int] | None:
    """Return where a partial answer starts, and the file's size; None if it does not reach the file's end."""
    found = re.fullmatch(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", answer.headers.get("content-range", ""))
    if not found:
        return None
    start, last, total = map(int, found.groups())
    return (start, total) if start <= last and last + 1 == total else None


def _total(answer: httpx.Response) -> int | None:
    """Return the size of the whole file; None if the answer does not say."""
    if answer.status_code == 206:
        ends = _range(answer)
        return ends[1] if ends else None
    said = answer.headers.get("content-length", "")
    return int(said) if re.fullmatch("[0-9]{1,18}", said) else None


def _begin(part: Path, note: Path, tag: str) -> None:
    """Empty the part, then write its file's entity tag: in this order no tag is ever beside bytes of another file."""
    note.unlink(missing_ok=True)
    part.write_bytes(b"")
    to_disk(part)
    if tag and not tag.startswith("W/"):
        write_whole(note, orjson.dumps(tag))


def _take(answer: httpx.Response, part: Path, most: int) -> bool:
    """Append an answer to the part. Return False, and stop, if the part would have more than `most` bytes.

    Each block has its own time limit, since the whole file may be large.
    """
    with part.open("ab") as out:
        at = part.stat().st_size
        for chunk in answer.iter_raw():
            if (at + len(chunk)) // BLOCK > at // BLOCK:
                begin(SECONDS_OF_A_BLOCK)
            at += len(chunk)
            if at > most:
                return False
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    return True


def _end_is_missing(file: PublishedFile, part: Path, total: int | None, is_chunked: bool) -> str:
    """Return why a part is not the whole file; empty text if it is. Raises `UnreadableFile` if fetching on cannot help.

    The client library raises an error if a chunked answer ends early, but not for an answer that ends with its
    connection.
    """
    if total is not None and part.stat().st_size != total:
        return EARLY
    if file.count is None:
        return ""
    lines, has_end = _lines(part)
    if total is None and not is_chunked and (lines < file.count or not has_end):
        return EARLY
    if lines != file.count:
        part.unlink()
        raise UnreadableFile(
            f"{file.name} cannot be used: it has {counted(lines, 'line')}, and the manifest counts {file.count:,}; "
            "have it published again"
        )
    return ""


def _lines(part: Path) -> tuple[int, bool]:
    """Return the number of lines that are not blank, and True if the last line has its end."""
    count, is_line, block = 0, False, b"\n"
    with part.open("rb") as file:
        while more := file.read(BLOCK):
            block = more
            first, *others = block.split(b"\n")
            is_line = is_line or bool(first.strip())
            for each in others:
                count, is_line = count + is_line, bool(each.strip())
    return count + is_line, block.endswith(b"\n")
