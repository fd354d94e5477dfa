"""A bucket on loopback with the part of S3 that copies need, and with faults on demand."""

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from threading import Lock
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.serving import Answers, served

WRITTEN = datetime(2026, 3, 1, 12, tzinfo=UTC)


class FakeBucket:
    """A bucket: its objects by key.

    parts: the parts of unfinished uploads, by upload id. wrong: a status for every answer, or a fault: `silent`,
    `slow`, `lost` (the connection ends), `cut` (it ends within a request), `half` (it ends within an object that is
    read), `unanswered` (an object is stored, its answer is lost), `expired` (credentials), `page` (a web page is the
    answer).

    closed: keys of objects that are listed and cannot be read, like archived ones.
    """

    def __init__(self, name: str) -> None:
        self.name, self.url = name, ""
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.wrong: int | str | None = None
        self.closed = set[str]()
        self.parts: dict[str, dict[int, bytes]] = {}
        self.lock = Lock()

    def environ(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "planted-id",
            "AWS_SECRET_ACCESS_KEY": "planted-secret",
            "AWS_REGION": "us-east-1",
        }

    def put(self, key: str, body: bytes, none_match: str | None, match: str | None) -> int:
        with self.lock:
            held = self.objects.get(key)
            if (none_match and held) or (match and (held is None or etag(held[0]) != match)):
                return 412
            self.objects[key] = (body, datetime.now(UTC))
            return 200

    def upload(self, command: str, key: str, query: dict[str, list[str]], body: bytes) -> tuple[bytes, str]:
        """Carry out a step of an upload in parts. Return the answer, and the etag of a part."""
        if "uploads" in query:
            with self.lock:
                self.parts[number := f"u{len(self.parts)}"] = {}
            begun = "InitiateMultipartUploadResult"
            return f"<{begun}><UploadId>{number}</UploadId></{begun}>".encode(), ""
        of = self.parts[query["uploadId"][0]]
        if command == "PUT":
            of[int(query["partNumber"][0])] = body
            return b"", etag(body)
        whole = b"".join(of[number] for number in sorted(of))
        if command == "POST":
            self.put(key, whole, None, None)
        done = "CompleteMultipartUploadResult"
        return f"<{done}><ETag>{etag(whole)}</ETag></{done}>".encode(), ""

    def listing(self, prefix: str, delimiter: str, after: str) -> bytes:
        with self.lock:
            objects = {k: each for k, each in sorted(self.objects.items()) if k.startswith(prefix) and k > after}
        folders = {key[: key.find(delimiter, len(prefix)) + 1] for key in objects if delimiter} - {""}
        found = "".join(
            f"<Contents><Key>{key}</Key><LastModified>{at:%Y-%m-%dT%H:%M:%S.000Z}</LastModified><ETag>{etag(body)}</ETag>"
            f"<Size>{len(body)}</Size></Contents>"
            for key, (body, at) in objects.items()
            if not (delimiter and delimiter in key[len(prefix) :])
        )
        found += "".join(f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in sorted(folders))
        return f"<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()


def etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


class Handler(Answers):
    bucket: FakeBucket
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise a body waits 40 ms for the acknowledgement of its head

    def respond(self) -> None:
        length, wrong = int(self.headers.get("content-length") or 0), self.bucket.wrong
        if wrong == "cut":
            self.rfile.read(length // 2)
            self.close_connection = True
            return
        body = self.rfile.read(length)
        at = urlsplit(self.path)
        key = unquote(at.path).removeprefix(f"/{self.bucket.name}").lstrip("/")
        if wrong in ("silent", "slow"):
            time.sleep(2 if wrong == "silent" else 0.02)
        if wrong in ("lost", "silent"):
            self.close_connection = True
        elif wrong == "expired":
            self.say(400, b"<Error><Code>ExpiredToken</Code><Message>planted words of the store</Message></Error>")
        elif wrong == "page":
            self.say(200, b"<html><body>Sign in</body></html>")
        elif isinstance(wrong, int):
            self.say(wrong, b"<Error><Message>planted words of the store</Message></Error>")
        else:
            self.carry_out(key, parse_qs(at.query, keep_blank_values=True), body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = respond

    def carry_out(self, key: str, query: dict[str, list[str]], body: bytes) -> None:
        if "uploads" in query or "uploadId" in query:
            self.say(200, *self.bucket.upload(self.command, key, query, body))
        elif self.command == "PUT":
            status = self.bucket.put(key, body, self.headers.get("if-none-match"), self.headers.get("if-match"))
            if self.bucket.wrong == "unanswered":
                self.bucket.wrong = None
                self.close_connection = True
                return
            self.say(status, b"", etag(body))
        elif self.command == "POST":
            found = re.findall(rb"<Key>(.*?)</Key>", body)
            for each in found:
                self.bucket.objects.pop(each.decode(), None)
            gone = b"".join(b"<Deleted><Key>%b</Key></Deleted>" % each for each in found)
            self.say(200, b"<DeleteResult>%b</DeleteResult>" % gone)
        elif self.command == "DELETE":
            self.bucket.objects.pop(key, None)
            self.say(204, b"")
        elif key in self.bucket.closed:
            self.say(403, b"<Error><Code>InvalidObjectState</Code></Error>")
        elif key in self.bucket.objects:
            body, at = self.bucket.objects[key]
            self.say(200, body, etag(body), at)
        elif "list-type" in query:
            said = (query.get(name, [""])[0] for name in ("prefix", "delimiter", "start-after"))
            self.say(200, self.bucket.listing(*said))
        else:
            self.say(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def say(self, status: int, body: bytes, tag: str = "", at: datetime = WRITTEN) -> None:
        self.send_response(status)
        if tag:
            self.send_header("etag", tag)
            self.send_header("last-modified", format_datetime(at, usegmt=True))
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if tag and self.bucket.wrong == "half" and self.command == "GET":
            body, self.close_connection = body[: len(body) // 2], True
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def fake_bucket(name: str = "bucket") -> Iterator[FakeBucket]:
    bucket = FakeBucket(name)
    handler = type("Handler", (Handler,), {"bucket": bucket})
    with served(handler) as bucket.url:
        yield bucket
