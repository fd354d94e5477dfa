"""Keys that were first sent in another spelling than keys are read in today: such a record keeps its key.

Its identifier at the target was made of it, so that under another it would be a second record.
"""

from collections.abc import Mapping

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.terms.texts import folded, seen
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.spellings import unplain_keys


def known_spellings(ledger: Ledger, target: str, feed: Feed) -> Mapping[str, str]:
    """Return, by each spelling that a file may have, the key that the ledger has of the record.

    A key in today's spelling that the ledger has too is another record, and stays one.
    """
    of = (target, feed.source, feed.resource)
    others = [key for key in unplain_keys(ledger, *of) if folded(seen(key)) != key]
    spellings = {key: key for key in others}
    today = {key: folded(seen(key)) for key in others}
    taken = ledger.known(*of, set(today.values())) if today else {}
    for key, shown in today.items():
        if shown and shown not in taken:
            spellings.setdefault(shown, key)
    return spellings
