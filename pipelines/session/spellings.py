"""Keys that were first sent in another spelling than keys are read in today: such a record keeps its key.

Its identifier at the target was made of it, so that under another it would be a second record.
"""

from collections.abc import Mapping

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.terms.columns import key
from pipelines.feeds.terms.texts import folded, seen
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.spellings import unplain_keys


def known_spellings(ledger: Ledger, target: str, feed: Feed) -> Mapping[str, str]:
    """Return, by each spelling that a file may have, the key that the ledger has of the record.

    A key in today's spelling that the ledger has too is another record, and stays one.
    """
    of = (target, feed.source, feed.resource)
    others = [before for before in unplain_keys(ledger, *of) if key(before) != before]
    spellings = {before: before for before in others}
    today = {before: _forms_today(before) for before in others}
    taken = ledger.known(*of, set().union(*today.values())) if today else {}
    for before, forms in today.items():
        for form in forms:
            if form not in taken:
                spellings.setdefault(form, before)
    return spellings


def _forms_today(before: str) -> list[str]:
    """Return the key as it looks, and as it is read without its guard against spreadsheets."""
    looks = folded(seen(before))
    return [form for form in (looks, key(looks)) if isinstance(form, str) and form]
