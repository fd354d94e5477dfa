"""The Parquet files of the validate stage: one schema for each."""

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
PLACE = {"line": pa.int64(), "lines": pa.int32(), "key": pa.string()}
"""The first line of a row or record, how many lines it has, and its key."""
MAPPED = pa.schema(
    {
        **PLACE,
        "at": pa.int64(),
        "record": pa.string(),
        "hash": pa.string(),
        "faults": pa.string(),
        "raw": pa.string(),
        "is_doubtful": pa.bool_(),
        "text_hash": pa.string(),
    }
)
"""is_doubtful: a row that is mapped, and set aside since it may have been misread; `hash` is of what it says.
text_hash: by which ledgers of older versions may know a row, with blanks between where there are several: of a whole
resource, of its text; of a task with a list of no labels, with that list; of a row with days for none, with these."""
ACCEPTED = pa.schema(
    {
        **PLACE,
        "lane": pa.string(),
        "position": pa.int64(),
        "content_hash": pa.string(),
        "patient_id": pa.string(),
        "source_at": TIME,
        "amount_cents": pa.int64(),
        "body": pa.string(),
        "text_hash": pa.string(),
    }
)
REASON = pa.struct(
    {
        "rule_id": pa.string(),
        "expression": pa.string(),
        "column": pa.string(),
        "message": pa.string(),
        "retryable": pa.bool_(),
        "line": pa.int64(),
    }
)
REJECTS = pa.schema(
    {
        **PLACE,
        "stage": pa.string(),
        "patient_id": pa.string(),
        "source_at": TIME,
        "amount_cents": pa.int64(),
        "record": pa.string(),
        "reasons": pa.list_(REASON),
        "content_hash": pa.string(),
        "text_hash": pa.string(),
    }
)
"""content_hash, text_hash: of what a doubtful record says, as those of accepted ones."""

KNOWN = pa.schema(
    {
        **PLACE,
        "patient_id": pa.string(),
        "source_at": pa.string(),
        "amount_cents": pa.int64(),
    }
)
"""Doubtful records that the target has with exactly their content."""

ANSWERS = pa.schema({"line": pa.int64(), "reject_id": pa.string()})
"""Columns of `answers.parquet`: the rejects that the record on a line answers. The file exists only where one does."""

WARNINGS = pa.schema(
    {
        "line": pa.int64(),
        "rule_id": pa.string(),
        "expression": pa.string(),
        "column": pa.string(),
        "message": pa.string(),
    }
)
"""Warnings, in a file that is written only if there are any; `line` is null for a fault of a questionnaire."""

SKIPPED = pa.schema(
    {
        **PLACE,
        "first_line": pa.int64(),
        "patient_id": pa.string(),
        "source_at": TIME,
        "amount_cents": pa.int64(),
    }
)

FILES = {"accepted": ACCEPTED, "rejects": REJECTS, "skipped": SKIPPED, "warnings": WARNINGS}
"""The files that a run writes of the records that it checks, each as `<name>.parquet` in its folder."""
