"""The folder of public data that is not part of the repository: `CHARTFERRY_REALDATA`, else `../shared/realdata`.

Tests that read it are skipped, with this reason, where it is missing.
"""

import os
from pathlib import Path

REALDATA = Path(os.environ.get("CHARTFERRY_REALDATA") or Path(__file__).parents[3] / "shared" / "realdata")
MISSING = "the folder of public data sets is not here: CHARTFERRY_REALDATA names it"
