"""A gateway that packs answers, and names what it has packed by another entity tag, as Apache's mod_deflate does."""

import gzip
import json

import pytest

from tests.support.fake_target import FakeTarget, Handler
from tests.support.serving import served
from tests.support.work import Work, response, task


class Packing(Handler):
    """Packs the answer of each read that asks for it."""

    def answer(self, status, body=None, headers=(), cut=0):
        if self.command != "GET" or "gzip" not in self.headers.get("accept-encoding", ""):
            return super().answer(status, body, headers, cut)
        packed = [(name, f'{value[:-1]}-gzip"' if name == "etag" else value) for name, value in headers]
        content = gzip.compress(body if isinstance(body, bytes) else json.dumps(body).encode())
        return super().answer(status, content, [*packed, ("content-encoding", "gzip")], cut)


@pytest.mark.parametrize(("feed", "changed", "make"), [("tasks", "update", task), ("answers", "supersede", response)])
def test_a_resource_is_updated_although_a_gateway_compresses_its_answer(tmp_path, feed, changed, make):
    """LEDGER-08: the target knows the tag of a packed answer as none of its versions."""
    target = FakeTarget(says=["transaction", "conditional", "identifier"])
    target.conflict = 412
    handler = type("ThisHandler", (Packing,), {"target": target})
    with served(handler) as target.url:
        work = Work(tmp_path, target)
        work.follow(feed, changed)
        work.run([make(1, text="a")], "one")
        assert work.run([make(1, text="b")], "two").counts == {f"{changed}d": 1}
        assert work.progress.lines == []
        assert target.puts == 1
        work.close()
