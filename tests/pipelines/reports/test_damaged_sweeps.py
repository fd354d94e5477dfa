"""Damaged files of a target's kept reports: no publication ends with a fault of this program."""

import pytest


@pytest.mark.publishes
def test_a_damaged_file_of_a_sweep_is_read_anew_or_named(home, target, chartferry):
    """REPORT-01: one that has what the target shows no more is for a person to put back."""
    target.create({"resourceType": "DiagnosticReport", "status": "final"})
    assert chartferry("reports")[0] == 0
    [folder] = (home / "batches" / "_reports").iterdir()
    for path in sorted(path for path in folder.iterdir() if path.suffix in {".json", ".parquet"}):
        path.write_bytes(path.read_bytes()[:-2])
        code, out, err = chartferry("reports")
        assert "fault of this program" not in err, (path.name, err)
        assert (code == 0) == (path.suffix == ".json"), path.name
        assert code == 0 or f"not published: {path} is damaged" in out + err
        path.unlink()
        assert chartferry("reports")[0] == 0, path.name
