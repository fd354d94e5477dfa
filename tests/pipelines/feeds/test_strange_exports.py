"""Drafts of exports that nobody here made a feed for: each column right, or asked; none wrong without a word.

The headers are those of trackers, billing systems, survey tools and practice systems, as their documentation and public
examples show them.
"""

from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pipelines.feeds.drafting.draft import draft_lines
from pipelines.feeds.drafting.entries import Entry, Line
from tests.support.crossing import every_second
from tests.support.export_headers import Judged, StrangeExport, content, exports, judged

EXPORTS = exports()
MOST_ASKED = 0.25
LEAST_RIGHT = 0.6


@cache
def drafted_lines(name: str) -> list[Line]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content(next(export for export in EXPORTS if export.file_name == name)))
        return draft_lines(path)


def verdicts(export: StrangeExport) -> tuple[str, list[Judged]]:
    """The kind that the draft has, and each column as it has it."""
    lines = drafted_lines(export.file_name)
    (kind,) = [line.value for line in lines if isinstance(line, Entry) and line.key == "kind"]
    return kind.strip('"'), list(judged(export, lines))


@pytest.mark.parametrize("export", every_second(EXPORTS), ids=[export.file_name for export in EXPORTS])
def test_no_column_of_a_strange_export_is_drafted_wrong_without_a_word(export: StrangeExport) -> None:
    """FEED-FILE-08."""
    kind, found = verdicts(export)
    assert kind == export.kind
    assert [judgement for judgement in found if judgement.verdict == "wrong"] == []


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)])
def test_most_columns_of_strange_exports_need_no_decision(every: int) -> None:
    """FEED-FILE-08."""
    counts: Counter[str] = Counter()
    for export in EXPORTS[::every]:
        counts.update(judgement.verdict for judgement in verdicts(export)[1])
    assert len(EXPORTS) >= 30
    assert counts["right"] >= LEAST_RIGHT * counts.total()
    assert counts["asked"] <= MOST_ASKED * counts.total()
