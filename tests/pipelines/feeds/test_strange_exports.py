"""Drafts of unknown exports: each column is drafted right, or asked about. None is silently wrong.

The headers are those of trackers, billing systems, survey tools and practice systems, as their documentation and public
examples show them; some were made by somebody who had not seen the code.
"""

from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pipelines.feeds.drafting.draft import draft_lines
from pipelines.feeds.drafting.entries import FeedEntry, Line
from tests.support.crossing import every_second
from tests.support.export_headers import Judged, StrangeExport, content, exports, judged, unseen

HEADERS = Path(__file__).parent / "unseen" / "headers"
SHOWN, UNSEEN = exports(), unseen()
MOST_ASKED = 0.25


@cache
def drafted_lines(name: str) -> list[Line]:
    if (HEADERS / name).exists():
        return draft_lines(HEADERS / name)
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content(next(export for export in SHOWN if export.file_name == name)))
        return draft_lines(path)


def verdicts(export: StrangeExport) -> tuple[str, list[Judged]]:
    """The kind that the draft has, and each column as it has it."""
    lines = drafted_lines(export.file_name)
    (kind,) = [line.value for line in lines if isinstance(line, FeedEntry) and line.key == "kind"]
    return kind.strip('"'), list(judged(export, lines))


@pytest.mark.parametrize(
    "export", every_second([*SHOWN, *UNSEEN]), ids=[export.file_name for export in (*SHOWN, *UNSEEN)]
)
def test_no_column_of_a_strange_export_is_drafted_wrong_without_a_word(export: StrangeExport) -> None:
    """FEED-FILE-08."""
    kind, found = verdicts(export)
    assert kind == export.kind
    assert [judgement for judgement in found if judgement.verdict == "wrong"] == []


@pytest.mark.parametrize(
    ("some", "least_right"),
    [(SHOWN[::2], 0.6), *(pytest.param(*each, marks=pytest.mark.long) for each in ((SHOWN, 0.6), (UNSEEN, 0.7)))],
    ids=["half", "shown", "unseen"],
)
def test_most_columns_of_strange_exports_need_no_decision(some: list[StrangeExport], least_right: float) -> None:
    """FEED-FILE-08."""
    counts = Counter(judgement.verdict for export in some for judgement in verdicts(export)[1])
    assert len(SHOWN) >= 30
    assert counts["right"] >= least_right * counts.total()
    assert counts["asked"] <= MOST_ASKED * counts.total()
