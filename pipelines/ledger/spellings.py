"""Keys in the ledger that may be read in another form today, or not as keys at all.

A key is plain, and read as ever, if it is ASCII with a digit, without blanks, plus signs and `.0` at its end, and
begins with a letter, a digit or `_`. All that rules for keys have come to refuse or to fold is outside of that.
"""

from pipelines.ledger.access import LedgerAccess

NOT_PLAIN = {
    "sqlite": "({key} GLOB '[^0-9A-Za-z_]*' OR {key} NOT GLOB '*[0-9]*' OR {key} GLOB '*[ +]*' OR {key} GLOB '*.0'"
    " OR length(CAST({key} AS BLOB)) <> length({key}))",
    "postgresql": "({key} ~ '^[^0-9A-Za-z_]' OR {key} !~ '[0-9]' OR {key} ~ '[ +]|[.]0$'"
    " OR octet_length({key}) <> length({key}))",
}
QUERY = """
SELECT key FROM record JOIN stream USING (stream_id)
WHERE target = ? AND source = ? AND resource_type = ? AND {of_record}
UNION SELECT source_key FROM reject WHERE target = ? AND source = ? AND resource_type = ? AND {of_reject}"""


def unplain_keys(ledger: LedgerAccess, target: str, source: str, resource_type: str) -> list[str]:
    """Return such keys of records and rejects, in order."""
    test = NOT_PLAIN[ledger.engine.dialect.name]
    query = QUERY.format(of_record=test.format(key="key"), of_reject=test.format(key="source_key"))
    return sorted(key for (key,) in ledger.rows(query, (target, source, resource_type) * 2))
