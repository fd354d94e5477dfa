"""Bundles of conditional creates, joined from bodies that are JSON already."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from uuid import NAMESPACE_URL, uuid5


def conditional_bundle(resource_type: str, entries: Sequence[tuple[str, str]], kind: str = "batch") -> bytes:
    """A Bundle of conditional creates from `(body JSON, ifNoneExist as JSON string)`: joined, not parsed.

    In a transaction each entry has a `fullUrl`, made from its condition: servers want it to tell entries apart.
    """
    request = f',"request":{{"method":"POST","url":"{resource_type}","ifNoneExist":'
    if kind == "transaction":
        names: Iterable[str] = (f'"fullUrl":"{uuid5(NAMESPACE_URL, condition).urn}",' for _, condition in entries)
    else:
        names = repeat("", len(entries))
    named = zip(names, entries, strict=True)
    joined = ",".join([f'{{{name}"resource":{body}{request}{condition}}}}}' for name, (body, condition) in named])
    return f'{{"resourceType":"Bundle","type":"{kind}","entry":[{joined}]}}'.encode()
