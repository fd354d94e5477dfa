"""Marked values, and the places where they leak."""

import re
from pathlib import Path

PLACES = re.compile(
    r"inbox/.*|batches/.*|published/(parquet/.*|reports\.[a-z]*\.?duckdb)|service\.duckdb(\.wal|\.ahead)?"
)
"""The places in a home that may hold patient data."""
MARK = re.compile(rb"[Qq]z[a-z]+[Zz]q")


def mark(what: str) -> str:
    return f"Qz{what}Zq"


TASKS = "task_id,patient_id,description,status,requester_id,owner_id,due,labels,comment,comment_author_id,comment_time"


def found_in(content: bytes) -> set[str]:
    return {each.decode() for each in MARK.findall(content)}


def leaks(home: Path, *texts: str) -> dict[str, set[str]]:
    """Return the markers outside the allowed places, by file of the home; those in the texts are under `said`."""
    files = [path for path in home.rglob("*") if path.is_file()]
    names = {str(path.relative_to(home)): path for path in files}
    outside = {
        name: path for name, path in names.items() if not PLACES.fullmatch(name) and not name.startswith("feeds/")
    }
    assert outside, "the ledger at least is searched"
    found = {name: found_in(path.read_bytes()) for name, path in outside.items()}
    found["said"] = found_in("\n".join(texts).encode())
    return {name: marks for name, marks in found.items() if marks}
