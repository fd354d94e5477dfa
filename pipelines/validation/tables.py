"""The Parquet files of the validate stage: one schema for each."""

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
PLACE = {"line": pa.int64(), "lines": pa.int32(), "key": pa.string()}
"""The first line of a row or record, its number of lines, and its key."""
MAPPED = pa.schema(
    {
        **PLACE,
        "at": pa.int64(),
        "record": pa.string(),
        "hash": pa.string(),
        "faults": pa.string(),
        "raw": pa.string(),
        "is_doubtful": pa.bool_(),
    }
)
"""is_doubtful: True for a mapped row that is set aside because it may have been misread; `hash` is of its content."""
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
    }
)
"""content_hash: of a doubtful record's content, as those of accepted ones."""

KNOWN = pa.schema({**PLACE, "patient_id": pa.string(), "source_at": pa.string(), "amount_cents": pa.int64()})
"""Doubtful records that the target has with exactly their content."""

ANSWERS = pa.schema({"line": pa.int64(), "reject_id": pa.string()})
"""Columns of `answers.parquet`: the rejects that the record on a line answers. The file exists only if there is one."""

WARNINGS = pa.schema(
    {
        "line": pa.int64(),
        "rule_id": pa.string(),
        "expression": pa.string(),
        "column": pa.string(),
        "message": pa.string(),
    }
)
"""Warnings, in a file that exists only if there are any. `line` is null for a fault of a questionnaire."""

SKIPPED = pa.schema(
    {**PLACE, "first_line": pa.int64(), "patient_id": pa.string(), "source_at": TIME, "amount_cents": pa.int64()}
)

FILES = {"accepted": ACCEPTED, "rejects": REJECTS, "skipped": SKIPPED, "warnings": WARNINGS}
"""The files that a run writes of the records that it checks, each as `<name>.parquet` in its folder."""
