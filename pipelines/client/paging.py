"""Read every page of a search: several at once where links name offsets and the target counts, else one ahead.

The pages come in the target's order. Whoever reads them counts what is in them: a page that moved shows there.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from pipelines.client.client import PAGE, FhirClient
from pipelines.client.replies import Refused, Unknown, next_link, total_of

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
    """Yield the pages of a search. Raises as `FhirClient.get` does.

    wishes: further parameters, left away like the large page where the target refuses them.
    """
    try:
        first = client.get(_path(resource_type, {**LARGE, **wishes, **params}))
    except Refused:
        first = client.get(_path(resource_type, {"_count": str(PAGE), **params}))
    with ThreadPoolExecutor(at_once, "page") as pool:
        last = first
        if at_once > 1:
            for page in _side_by_side(pool, client.get, others(first, client.profile.offset), at_once):
                yield last
                last = page
        yield from _one_ahead(pool, client.get, last)


def _path(resource_type: str, params: dict[str, str]) -> str:
    return f"/{resource_type}?{urlencode(params)}"


def others(first: Page, offset: str) -> Iterator[str]:
    """Yield the addresses of the pages after the first; none where the links or the count do not tell them.

    offset: the parameter of a link that counts resources.
    """
    link, total = next_link(first), total_of(first)
    found = re.search(rf"([?&]{re.escape(offset)}=)(\d{{1,15}})(?=&|$)", link or "")
    if link is None or found is None or total is None or not (step := int(found[2])):
        return
    for at in range(step, total, step):
        yield f"{link[: found.start()]}{found[1]}{at}{link[found.end() :]}"


def _side_by_side(
    pool: ThreadPoolExecutor, get: Callable[[str], Page], addresses: Iterable[str], at_once: int
) -> Iterator[Page]:
    """Yield the pages of these addresses in order, up to one without entries: what was counted may be gone since."""
    left = iter(addresses)
    coming: deque[Future[Page]] = deque(pool.submit(get, address) for address in islice(left, at_once))
    try:
        while coming:
            page = coming.popleft().result()
            coming.extend(pool.submit(get, address) for address in islice(left, 1))
            yield page
            if not page.get("entry"):
                return
    finally:
        for each in coming:
            each.cancel()


def _one_ahead(pool: ThreadPoolExecutor, get: Callable[[str], Page], page: Page) -> Iterator[Page]:
    """Yield a page and those that its `next` links lead to, asking for the next while one is understood."""
    followed = set[str]()
    while link := next_link(page):
        if link in followed:
            raise Unknown("the next links lead in a circle")
        followed.add(link)
        coming = pool.submit(get, link)
        yield page
        page = coming.result()
    yield page
