"""Control totals as systems write them beside a file: compared, or refused as unreadable."""

from pathlib import Path

import pytest

from tests.support.validating import PAYMENTS as HEADER
from tests.support.validating import validated

ROWS = HEADER + "k1,p1,1.00,2026-01-01,\nk2,p1,2.50,2026-01-01,\n"
FORM = "is not a JSON object of the form"


@pytest.mark.parametrize(
    ("control", "sentence"),
    [
        ('\ufeff{"rows": 2, "amount": "3.50"}', None),
        ('{"rows": "2", "amount": 3.5}', None),
        ('{"rows": 2.0, "exported": "2026-01-02"}', None),
        ('{"rows": "3"}', "says 3 rows, the file has 2"),
        ('{"amount": "3.505"}', "says a different amount than the rows of the file have"),
        ('{"row_count": 2, "total": "3.50"}', FORM),
        ('{"rows": null}', FORM),
        ("{}", FORM),
        ('{"rows": true}', FORM),
        ('{"rows": "two"}', FORM),
        ('{"rows": 1e400}', FORM),
        ('{"amount": "NaN"}', FORM),
        ('{"amount": [1]}', FORM),
        ("[2]", FORM),
        ("", FORM),
    ],
)
def test_control_totals_are_compared_and_unreadable_ones_stop_the_file(
    control: str, sentence: str | None, tmp_path: Path
) -> None:
    """FEED-FILE-08: a total under another name must not pass for one that agrees."""
    (tmp_path / "payments.csv.control.json").write_text(control)
    found = validated(ROWS, tmp_path)
    if sentence is None:
        assert found.stop is None
    else:
        assert sentence in (found.stop or "")
