"""A program that serves a bucket by Google's `storage-testbench`: PORT BUCKET. The testbench's own Python runs it.

Puts, gets and their preconditions are the testbench's. This program adds what its XML API lacks: listings in pages of
ten names, removals, uploads in parts, and the headers `etag` and `last-modified`.
"""

import json
import sys
from importlib import import_module
from typing import Any
from uuid import uuid4
from xml.sax.saxutils import escape

flask: Any = import_module("flask")
rest: Any = import_module("testbench.rest_server")
FakeRequest: Any = import_module("testbench.common").FakeRequest
PAGE = 10

parts: dict[str, dict[int, bytes]] = {}


def listing(bucket_name: str) -> Any:
    """Answer one page of the listing. The last name on it leads to the next page."""
    asked = flask.request.args
    found, below = rest.db.list_object(flask.request, bucket_name, None)
    lines = {each.name: contents(each) for each in found}
    lines |= {name: f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in below}
    left = sorted(name for name in lines if name > asked.get("continuation-token", ""))
    more = f"<NextContinuationToken>{escape(left[PAGE - 1])}</NextContinuationToken>" if left[PAGE:] else ""
    return said("ListBucketResult", "".join(lines[name] for name in left[:PAGE]) + more)


def contents(about: Any) -> str:
    at = about.update_time.ToDatetime()
    return (
        f"<Contents><Key>{escape(about.name)}</Key><LastModified>{at:%Y-%m-%dT%H:%M:%S.%fZ}</LastModified>"
        f"<ETag>{escape(tag(about))}</ETag><Size>{about.size}</Size></Contents>"
    )


def tag(about: Any) -> str:
    return f'"{about.checksums.md5_hash.hex()}"'


def said(name: str, text: str) -> Any:
    return flask.Response(f"<{name}>{text}</{name}>", content_type="application/xml")


def remove(bucket_name: str, object_name: str) -> Any:
    rest.db.delete_object(bucket_name, object_name)
    return flask.Response(status=204)


def put(bucket_name: str, object_name: str) -> Any:
    """Put an object as the testbench does, or a part of one."""
    upload = parts.get(flask.request.args.get("uploadId", ""))
    if upload is None:
        answer = put_whole(bucket_name=bucket_name, object_name=object_name)
        return headed(answer, flask.g.stored)
    number = int(flask.request.args["partNumber"])
    upload[number] = flask.request.get_data()
    return flask.Response(headers={"etag": f'"part-{number}"'})


def post(bucket_name: str, object_name: str) -> Any:
    """Begin or end an upload in parts. Preconditions are ignored there, as at Google."""
    if "uploads" in flask.request.args:
        parts[number := uuid4().hex] = {}
        return said("InitiateMultipartUploadResult", f"<UploadId>{number}</UploadId>")
    of = parts.pop(flask.request.args["uploadId"])
    bucket = rest.db.get_bucket(bucket_name, None).metadata
    about = {"bucket": bucket.name, "name": object_name}
    whole = b"".join(of[number] for number in sorted(of))
    plain = FakeRequest(args={}, headers={}, environ={})
    blob, _ = rest.gcs_type.object.Object.init_dict(plain, about, whole, bucket, False)
    rest.db.insert_object(bucket_name, blob)
    return headed(said("CompleteMultipartUploadResult", f"<ETag>{escape(tag(blob.metadata))}</ETag>"), blob.metadata)


def get(bucket_name: str, object_name: str) -> Any:
    answer = get_whole(bucket_name=bucket_name, object_name=object_name)
    now = rest.db.get_object(bucket_name, object_name, generation=answer.headers["x-goog-generation"])
    return headed(answer, now.metadata)


def headed(answer: Any, about: Any) -> Any:
    answer.headers["etag"] = tag(about)
    answer.headers["x-goog-generation"] = str(about.generation)
    answer.headers["last-modified"] = f"{about.update_time.ToDatetime():%a, %d %b %Y %H:%M:%S GMT}"
    return answer


def insert(bucket_name: str, blob: Any, **more: Any) -> None:
    insert_whole(bucket_name, blob, **more)
    flask.g.stored = blob.metadata


views = rest.root.view_functions
put_whole, get_whole = views["root_put_object_with_bucket"], views["root_get_object_with_bucket"]
insert_whole = rest.db.insert_object
rest.db.insert_object = insert
views |= {
    "root_put_object_with_bucket": put,
    "root_get_object_with_bucket": get,
    "root_create_resumable_object": post,
}
rest.root.add_url_rule("/<bucket_name>", view_func=listing)
rest.root.add_url_rule("/<bucket_name>/<path:object_name>", view_func=remove, methods=["DELETE"])

if __name__ == "__main__":
    port, name = sys.argv[1:]
    made, _ = rest.gcs_type.bucket.Bucket.init(FakeRequest(args={}, data=json.dumps({"name": name})), None)
    rest.db.insert_bucket(made, None)
    import_module("waitress").serve(rest.root, host="127.0.0.1", port=int(port), threads=20)
