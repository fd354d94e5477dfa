"""The row format of a feed, as Python's `csv` takes it."""

import csv
from typing import Any

from pipelines.feeds.terms.schema import FeedFile


def dialect(feed: FeedFile) -> dict[str, Any]:
    """The arguments that reader and writer share."""
    return {
        "delimiter": feed.delimiter,
        "quotechar": feed.quote or None,
        "quoting": csv.QUOTE_MINIMAL if feed.quote else csv.QUOTE_NONE,
        "escapechar": feed.escape or None,
        "doublequote": True,
        "skipinitialspace": feed.skip_spaces,
    }
