"""No database draws bars on the output of a process, as DuckDB does where it takes the process for a person."""

import subprocess
import sys
from pathlib import Path

OPENED = """
import sys
from pathlib import Path
import duckdb
from pipelines.home import files, spill

folder = Path(sys.argv[1])
with files.session(folder / "spill") as memory, files.session(folder / "spill-2", folder / "file.duckdb") as file:
    for database in (duckdb.connect(), memory, file, spill.sorter(folder / "sorting")):
        print(database.execute("SELECT current_setting('enable_progress_bar')").fetchone()[0])
"""


def test_no_database_of_the_import_draws_bars_where_duckdb_would(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPENED, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["True", "False", "False", "False"]
