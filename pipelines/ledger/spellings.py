"""Keys in the ledger that may be read in another form today.

They have signs beyond ASCII, two blanks in a row, or a guard against spreadsheets around them (`="007"`).
"""

from pipelines.ledger.access import LedgerAccess

_GUARDED = "substr({key}, 1, 2) = '=\"'"
NOT_PLAIN = {
    "sqlite": "(length(CAST({key} AS BLOB)) <> length({key}) OR instr({key}, '  ') > 0 OR " + _GUARDED + ")",
    "postgresql": "(octet_length({key}) <> length({key}) OR position('  ' IN {key}) > 0 OR " + _GUARDED + ")",
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
