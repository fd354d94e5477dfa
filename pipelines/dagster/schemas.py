"""The column schemas that the pages of the import assets show."""

import dagster as dg

from pipelines.dagster import metadata
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.files.describe import describe
from pipelines.reports.tables import readable_tables
from pipelines.validation.tables import ACCEPTED


def source_schema(feed: Feed) -> dg.TableSchema:
    """Return the columns of an export, with the element that the feed makes of each."""
    return metadata.schema([(name, "string", f"{element}, from {origin}") for name, element, origin in describe(feed)])


def ledger_schema() -> dg.TableSchema:
    """Return the columns of the published table `import_row`, which describe a record in the ledger."""
    columns = [[each[:3] for each in table.columns] for table in readable_tables() if table.name == "import_row"]
    return metadata.schema(columns[0] if columns else [])


def accepted_schema() -> dg.TableSchema:
    """Return the columns of `accepted.parquet`: the records that are ready to be sent."""
    return metadata.schema([(each.name, str(each.type), OF_ACCEPTED[each.name]) for each in ACCEPTED])


OF_ACCEPTED = {
    "line": "First physical line of the record.",
    "lines": "Physical lines of the record.",
    "key": "The record's key in its source.",
    "lane": "Records of one lane are sent one after another.",
    "position": "Place in the order of sending.",
    "content_hash": "Hash of the mapped record.",
    "patient_id": "The patient's id at the target.",
    "source_at": "The record's own time.",
    "amount_cents": "Amount in cents.",
    "body": "The body to send.",
    "text_hash": "Hashes by which ledgers of older versions may know the record, where it was another.",
}
