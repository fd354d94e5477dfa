"""What lies in a folder of exports and is no file: named, left where it is, and the others are imported."""

import os

from pipelines.feeds.catalog import load_feeds
from pipelines.session import find_files


def test_a_pipe_is_never_opened(tmp_path):
    os.mkfifo(tmp_path / "payments-pipe.csv")
    (tmp_path / "payments-1.csv").write_text("payment_id\n")
    matched, unmatched = find_files([tmp_path], load_feeds([]))
    assert [waiting.path.name for waiting in matched] == ["payments-1.csv"]
    assert [path.name for path in unmatched] == ["payments-pipe.csv"]
