"""Read every page of a search: several at once where links name offsets and the target counts, else one ahead.

The pages come in the target's order. Whoever reads them counts what is in them, as `whole.py` says.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from pipelines.client.client import PAGE, FhirClient
from pipelines.client.replies import Refused
from pipelines.client.threads import result_of, threads
from pipelines.client.whole import Turning

Page = dict[str, Any]
AT_ONCE = 4
"""Pages under way at once: a target reads some while others are understood here."""
NONE: Mapping[str, str] = {}
LARGE = {"_count": "1000"}
"""Asked for first; a target gives pages of its own largest size, or refuses, and is asked as always."""


def every_page(
    client: FhirClient,
    resource_type: str,
    params: Mapping[str, str] = NONE,
    wishes: Mapping[str, str] = NONE,
    at_once: int = AT_ONCE,
) -> Iterator[Page]:
    """Yield the pages of a search. Raises as `FhirClient.get` does, and `Incomplete` if a page moved up.

    wishes: further parameters, left away like the large page where the target refuses them.
    """
    try:
        first = client.get(_path(resource_type, {**LARGE, **wishes, **params}))
    except Refused:
        first = client.get(_path(resource_type, {"_count": str(PAGE), **params}))
    with threads(at_once, "page") as pool:
        yield from _followed(pool, client.get, first, Turning(client.profile.offset, resource_type), at_once)


def _path(resource_type: str, params: dict[str, str]) -> str:
    return f"/{resource_type}?{urlencode(params)}"


def _followed(
    pool: ThreadPoolExecutor, get: Callable[[str], Page], page: Page, turning: Turning, at_once: int
) -> Iterator[Page]:
    """Yield a page and those that its `next` links lead to, asking for the next while one is understood.

    Several are asked for ahead by addresses that the first page tells, as long as the links lead to these.
    """
    ahead = turning.others(page) if at_once > 1 else iter(())
    coming = deque[tuple[str, Future[Page]]]()
    try:
        shown, link = turning.new(page), turning.turn(page)
        while link:
            coming.extend((each, pool.submit(get, each)) for each in islice(ahead, at_once - len(coming)))
            if not coming or coming[0][0] != link:
                _cancel(coming)
                ahead, coming = iter(()), deque([(link, pool.submit(get, link))])
            yield shown
            try:
                page = result_of(coming.popleft()[1])
            except Refused:
                if (given := turning.as_given()) is None:
                    raise
                _cancel(coming)
                ahead, page = iter(()), get(given)
                coming.clear()
            shown, link = turning.new(page), turning.turn(page)
    finally:
        _cancel(coming)
    yield shown


def _cancel(coming: Iterable[tuple[str, Future[Page]]]) -> None:
    for _, each in coming:
        each.cancel()
