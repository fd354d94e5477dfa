"""Files that another system publishes in bulk (`$bulk-publish`): read its manifest, and fetch what can be imported.

Nothing of the manifest is trusted: files are fetched from its own host alone, no redirect is followed, and the token
goes nowhere else. A file that was fetched in part is gone on with, if its entity tag says that it is still the same.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import orjson

from pipelines.client.client import is_loopback
from pipelines.home.batch import Unreadable
from pipelines.home.files import replace_whole, write_whole

TOKEN = "CHARTFERRY_BULK_TOKEN"  # noqa: S105 - the name of a variable
KINDS = {"PaymentNotice": "payments", "QuestionnaireResponse": "answers", "Task": "tasks"}
"""By type of resource: what the name of a file begins with, by which a feed takes it."""
MANIFEST_BYTES = 4 << 20
MOST_FILES = 1_000
MOST_BYTES = 64 << 30
TRIES = 5
PLAIN = {"accept-encoding": "identity"}


@dataclass(frozen=True)
class Published:
    """A file that a manifest names. name: what it is called here."""

    url: str
    name: str


def fetch_published(
    url: str,
    folder: Path,
    environ: Mapping[str, str],
    insecure: bool = False,
    transport: httpx.BaseTransport | None = None,
) -> list[Path]:
    """Fetch the files of a manifest that can be imported, into a folder; return them in the manifest's order.

    Raises `Unreadable` with one sentence. What was fetched stays, and is not fetched again.
    """
    check_address(url, insecure)
    token = environ.get(TOKEN)
    headers = PLAIN | ({"authorization": f"Bearer {token}"} if token else {})
    beyond = not is_loopback(url)
    with httpx.Client(headers=headers, timeout=60.0, trust_env=beyond, transport=transport) as http:
        content = _manifest(http, url)
        files = list(_files(content, url, has_token=bool(token)))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file in files:
            _fetch(http, file, folder)
    return [folder / file.name for file in files]


def check_address(url: str, insecure: bool = False) -> None:
    """Raise `Unreadable` for an address that nothing is fetched from."""
    try:
        parts, _ = urlsplit(url), urlsplit(url).port
    except ValueError:
        raise Unreadable("the manifest's address is none") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unreadable("the manifest's address is not an http:// or https:// address")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise Unreadable(
            "the manifest's address holds more than an address: leave out user, password and what follows #"
        )
    if parts.scheme == "http" and not is_loopback(url) and not insecure:
        raise Unreadable("the manifest's address is http:// beyond this machine: use https://, or --insecure")


def _manifest(http: httpx.Client, url: str) -> bytes:
    """Return the text of the manifest, which is small."""
    parts = []
    size = 0
    try:
        with http.stream("GET", url, headers={"accept": "application/json"}) as answer:
            if answer.status_code != 200:
                raise Unreadable(f"the manifest cannot be had: HTTP {answer.status_code}{_hint(answer)}")
            for part in answer.iter_bytes():
                size += len(part)
                if size > MANIFEST_BYTES:
                    raise Unreadable(f"the manifest is larger than {MANIFEST_BYTES >> 20} MiB")
                parts.append(part)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unreadable(f"the manifest cannot be had ({type(error).__name__})") from None
    return b"".join(parts)


def _hint(answer: httpx.Response) -> str:
    if answer.is_redirect:
        return ", which leads elsewhere: name the address that it leads to"
    return f"; a token is taken from {TOKEN}" if answer.status_code in (401, 403) else ""


def _files(content: bytes, url: str, has_token: bool) -> Iterator[Published]:
    """Yield the files that can be imported. Raises `Unreadable` for a manifest that is none."""
    try:
        manifest = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise Unreadable("the manifest is not JSON") from None
    output = manifest.get("output") if isinstance(manifest, dict) else None
    if not isinstance(output, list):
        raise Unreadable("the manifest has no list `output`")
    if len(output) > MOST_FILES:
        raise Unreadable(f"the manifest names more than {MOST_FILES:,} files")
    if manifest.get("requiresAccessToken") is True and not has_token:
        raise Unreadable(f"the files of the manifest want a token: set {TOKEN}")
    version = hashlib.sha256(content).hexdigest()[:12]
    found = 0
    for place, each in enumerate(output):
        kind, address = (each.get("type"), each.get("url")) if isinstance(each, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(address, str):
            raise Unreadable(f"output[{place}] of the manifest has no `type` and `url`")
        if kind in KINDS:
            found += 1
            yield Published(_at_the_host(address, url, place), f"{KINDS[kind]}-bulk-{version}-{place}.ndjson")
    if not found:
        raise Unreadable(f"the manifest names no file of {', '.join(KINDS)}")


def _at_the_host(address: str, manifest: str, place: int) -> str:
    try:
        whole = urljoin(manifest, address)
        parts, own = urlsplit(whole), urlsplit(manifest)
        same = (parts.scheme, parts.hostname, parts.port) == (own.scheme, own.hostname, own.port)
    except ValueError:
        same = False
    if not same or parts.username is not None:
        raise Unreadable(f"output[{place}] of the manifest leads to another host")
    return whole


def _fetch(http: httpx.Client, file: Published, folder: Path) -> None:
    """Fetch a file, in several goes where a connection ends early."""
    final = folder / file.name
    part, note = final.with_suffix(".part"), final.with_suffix(".etag")
    if final.exists():
        return
    why = ""
    for _ in range(TRIES):
        try:
            if _whole(http, file, part, note):
                replace_whole(part, final)
                note.unlink(missing_ok=True)
                return
            why = "it ends early"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = type(error).__name__
    raise Unreadable(f"{file.name} cannot be had whole ({why}): import it again to go on")


def _whole(http: httpx.Client, file: Published, part: Path, note: Path) -> bool:
    """Fetch what is missing of a file; True if all of it is there."""
    etag: str = json.loads(note.read_text()) if note.exists() and part.exists() else ""
    at = part.stat().st_size if etag else 0
    wanted = {"range": f"bytes={at}-", "if-range": etag} if at else {}
    with http.stream("GET", file.url, headers={"accept": "application/fhir+ndjson", **wanted}) as answer:
        if answer.status_code == 416 and at:
            note.unlink()
            return False
        if answer.status_code not in (200, 206):
            raise Unreadable(f"{file.name} cannot be had: HTTP {answer.status_code}{_hint(answer)}")
        goes_on = answer.status_code == 206
        if goes_on and not answer.headers.get("content-range", "").startswith(f"bytes {at}-"):
            raise Unreadable(f"{file.name} cannot be had: the host answers with another part than was asked for")
        if not goes_on:
            at = 0
            tag = answer.headers.get("etag", "")
            if tag and not tag.startswith("W/"):
                write_whole(note, orjson.dumps(tag))
            else:
                note.unlink(missing_ok=True)
        length = int(said) if (said := answer.headers.get("content-length", "")).isdecimal() else None
        with part.open("ab" if goes_on else "wb") as out:
            start = at
            for chunk in answer.iter_raw():
                at += len(chunk)
                if at > MOST_BYTES:
                    raise Unreadable(f"{file.name} is larger than {MOST_BYTES >> 30} GiB")
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        return length is None or at - start == length
