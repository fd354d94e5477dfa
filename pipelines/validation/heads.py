"""The columns of a file that its feed does not name."""

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.mapping.header import path_heads, unnamed_columns
from pipelines.feeds.reading.chunks import Chunk


class Heads:
    """Gathers these columns: of a CSV by its header, else what its objects begin with.

    Whole resources are left aside; names are gathered up to a number that can still be listed.
    """

    MOST = 1000

    def __init__(self, feed: Feed, header: list[str] | None) -> None:
        self._feed, self._header = feed, header
        self._names: set[str] = set()

    def note(self, chunk: Chunk) -> None:
        if self._header is None and len(self._names) < self.MOST:
            resources = self._feed.file.resources
            self._names.update(*(row for row in chunk.rows if not (resources and "resourceType" in row)))

    def unnamed(self) -> list[str]:
        if self._header is not None:
            return unnamed_columns(self._feed, self._header)
        return sorted(self._names - path_heads(self._feed)) if self._feed.file.columns else []
