"""Keys that were first sent in another spelling than today's: such a record keeps its key.

Its identifier at the target was made of that key, so under another key it would be a second record. A plain key is
spelled as ever. A key is plain if all of these hold: it is ASCII with a digit; it begins with a letter, a digit or
`_`; it has no quotes, no blanks other than single ones between others, no `E` between digits or before a plus sign, and
does not end in `.0` or `,0`; it does not begin with `rem `, and has no word for a total. Rules for keys have only ever
refused or changed keys that are not plain.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.terms.columns import key, of_quoted_bytes
from pipelines.feeds.terms.texts import folded_text, visible_text
from pipelines.ledger.ledger import Ledger


def known_spellings(ledger: Ledger, target: str, feed: Feed) -> Mapping[str, str]:
    """Return the ledger's key of a record by each spelling that a file may have.

    A key in today's spelling that the ledger also has is another record, and stays one.
    """
    of = (target, feed.source, feed.resource)
    found = {before: _forms_today(before) for before in unplain_keys(ledger, *of)}
    read = partial(key, decimal=feed.file.decimal)
    today = {before: forms for before, forms in found.items() if {read(before), *forms} != {before}}
    spellings = {before: before for before in today}
    taken = ledger.known(*of, set().union(*today.values())) if today else {}
    for before, forms in today.items():
        for form in forms:
            if form not in taken:
                spellings.setdefault(form, before)
    return spellings


def _forms_today(before: str) -> list[str]:
    """Return the forms of a key today: as it looks, without a spreadsheet guard, and with quoted parts decoded."""
    looks = folded_text(visible_text(before))
    forms = [form for form in (looks, key(looks)) if isinstance(form, str) and form]
    return [*forms, *(_QUOTED.sub(partial(_plain, write), form) for form in forms[-1:] for write in (bytes.hex, _uuid))]


def read_today(before: str) -> str:
    """Return a key as it is read today; unchanged if none of its forms is accepted."""
    return next(reversed(_forms_today(before)), before)


def _plain(write: Callable[[bytes], str], quoted: re.Match[str]) -> str:
    """Return the content of a quoted part. write: writes bytes that are no text."""
    if quoted[1]:
        return quoted[1]
    try:
        found = of_quoted_bytes(json.loads(quoted[0]))
    except (ValueError, SyntaxError):
        return quoted[0]
    try:
        return found.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return write(found)


def _uuid(found: bytes) -> str:
    return str(UUID(bytes=found)) if len(found) == 16 else found.hex()


_QUOTED = re.compile("\"(?:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})|b'[^'\"]*')\"")
"""Matches UUIDs and bytes of Parquet as earlier versions read them, also if the feed adds something before or after."""
NOT_PLAIN = {
    "sqlite": "({key} GLOB '[^0-9A-Za-z_]*' OR {key} NOT GLOB '*[0-9]*' OR {key} GLOB '*[.,]0'"
    " OR {key} GLOB '[0-9][.,]*E[0-9]*' OR length(CAST({key} AS BLOB)) <> length({key})"
    " OR {key} GLOB '*[ +\"]*' AND ({key} GLOB '*[\"]*' OR {key} GLOB '*  *' OR {key} GLOB '* ' OR {key} GLOB '*[Ee]+*'"
    " OR {key} LIKE 'rem _%' OR {key} LIKE '%total%' OR {key} LIKE '%summe%' OR {key} LIKE '%gesamt%'))",
    "postgresql": "({key} ~ '^[^0-9A-Za-z_]' OR {key} !~ '[0-9]' OR {key} ~ '[.,]0$|^[0-9][.,].*E[0-9]'"
    " OR octet_length({key}) <> length({key})"
    " OR {key} ~ '[ +\"]' AND ({key} ~ '\"|  | $|[Ee][+]' OR {key} ~* '^rem .|total|summe|gesamt'))",
}
QUERY = """
SELECT key FROM record JOIN stream USING (stream_id)
WHERE target = ? AND source = ? AND resource_type = ? AND {of_record}
UNION SELECT source_key FROM reject WHERE target = ? AND source = ? AND resource_type = ? AND {of_reject}"""


def unplain_keys(ledger: Ledger, target: str, source: str, resource_type: str) -> list[str]:
    """Return the keys of records and rejects that are not plain, in order."""
    test = NOT_PLAIN[ledger.engine.dialect.name]
    query = QUERY.format(of_record=test.format(key="key"), of_reject=test.format(key="source_key"))
    return sorted(key for (key,) in ledger.rows(query, (target, source, resource_type) * 2))
