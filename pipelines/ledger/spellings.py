"""Keys in the ledger that have more signs than ASCII has, or two blanks in a row: those that may look like others."""

from sqlalchemy import select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess

NOT_PLAIN = {
    "sqlite": "(length(CAST({key} AS BLOB)) <> length({key}) OR instr({key}, '  ') > 0)",
    "postgresql": "(octet_length({key}) <> length({key}) OR position('  ' IN {key}) > 0)",
}
QUERY = """
SELECT key FROM entry WHERE target = ? AND source = ? AND resource_type = ? AND {of_entry}
UNION SELECT source_key FROM reject WHERE target = ? AND source = ? AND resource_type = ? AND {of_reject}"""


def unplain_keys(ledger: LedgerAccess, target: str, source: str, resource_type: str) -> list[str]:
    """Return such keys of records and rejects, in order."""
    of = (target, source, resource_type)
    with ledger.engine.connect() as connection:
        texts = connection.execute(select(t.term.c.text, t.term.c.term_id).where(t.term.c.text.in_(of)))
        number = {row.text: row.term_id for row in texts}
    test = NOT_PLAIN[ledger.engine.dialect.name]
    query = QUERY.format(of_entry=test.format(key="key"), of_reject=test.format(key="source_key"))
    return sorted(key for (key,) in ledger.rows(query, (*(number.get(text, -1) for text in of), *of)))
