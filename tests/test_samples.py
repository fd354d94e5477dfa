"""The samples: the generator writes what is committed, and it is valid FHIR R4."""

import csv
import gzip
import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from fhir.resources.R4B import get_fhir_model_class

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "data" / "samples"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))


def content(path: Path) -> bytes:
    """A file's bytes, unpacked: packers differ from system to system."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): content(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_generator_writes_what_is_committed(tmp_path):
    command = [sys.executable, "-S", "-I", str(ROOT / "data" / "generate.py"), str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    assert files_in(tmp_path) == files_in(SAMPLES)


@pytest.mark.parametrize("path", sorted((SAMPLES / "reference").glob("*.ndjson")), ids=lambda path: path.stem)
def test_reference_data_is_valid_R4(path):
    resources = [json.loads(line, parse_float=Decimal) for line in path.read_text(encoding="utf-8").splitlines()]
    (kind,) = {resource["resourceType"] for resource in resources}
    assert len({resource["id"] for resource in resources}) == len(resources) == EXPECTED["reference"][kind]["records"]
    model = get_fhir_model_class(kind)
    for resource in resources[:: max(1, len(resources) // 100)]:
        model.model_validate(resource)


def test_references_lead_somewhere():
    paths = (SAMPLES / "reference").glob("*.ndjson")
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    known = {f"{resource['resourceType']}/{resource['id']}" for resource in map(json.loads, lines)}
    named = {target for line in lines for target in references(json.loads(line))}
    assert named - known == {"Organization/org-lab"}


def references(value):
    if isinstance(value, list):
        for part in value:
            yield from references(part)
    elif isinstance(value, dict):
        if "reference" in value:
            yield value["reference"]
        for part in value.values():
            yield from references(part)


@pytest.mark.parametrize("name", EXPECTED["files"])
def test_expected_counts_close(name):
    """REPORT-23: lines and records add up, as the published counts must."""
    counts = EXPECTED["files"][name]
    outcomes = sum(counts[outcome] for outcome in ("created", "unchanged", "skipped", "refused"))
    assert counts["accepted"] == outcomes
    assert counts["records"] == counts["accepted"] + sum(counts["rejected"].values())
    assert counts["lines"] == content(SAMPLES / "inbox" / name).count(b"\n")


@pytest.mark.parametrize("path", sorted((SAMPLES / "inbox").glob("*.control.json")), ids=lambda path: path.name)
def test_control_totals_agree_with_their_file(path):
    totals = json.loads(path.read_text(encoding="utf-8"))
    text = content(path.with_name(path.name.removesuffix(".control.json"))).decode("utf-8")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert totals["rows"] == len(rows)
    if "amount" in totals:
        assert Decimal(totals["amount"]) == sum(Decimal(row["amount"]) for row in rows)
