"""The dictionary for programs, used by the programs: dbt builds over `sources.yml`, Frictionless reads the package.

Neither comes with the project: in a virtual environment of its own, whose `bin` is put at the end of `PATH`,
`pip install "dbt-core<1.11" dbt-duckdb frictionless pandas pyarrow` lets these tests run. (Installing dbt-core 1.11
downloads a part of it from GitHub.)
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.publishing import World, import_payments

DBT, FRICTIONLESS = shutil.which("dbt"), shutil.which("frictionless")
PROJECT = 'name: mine\nversion: "1.0"\nprofile: mine\nmodel-paths: [models]\n'
PROFILE = """
mine:
  target: dev
  outputs:
    dev:
      type: duckdb
      path: {own}
      attach: [{{path: {published}, alias: reports, read_only: true}}]
"""
MODEL = """
SELECT patient_id, sum(amount) AS amount FROM {{ source('chartferry', 'payment') }}
WHERE fate = 'created' GROUP BY patient_id
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    world = World(tmp_path_factory.mktemp("home"))
    import_payments(world)
    yield world.publish().path
    world.ledger.close()


@pytest.mark.skipif(DBT is None, reason="dbt-duckdb is not installed")
def test_dbt_builds_a_model_over_the_sources_and_their_tests_pass(published: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    shutil.copy(published.with_name("sources.yml"), tmp_path / "models")
    (tmp_path / "models" / "paid.sql").write_text(MODEL)
    (tmp_path / "dbt_project.yml").write_text(PROJECT)
    (tmp_path / "profiles.yml").write_text(PROFILE.format(own=tmp_path / "own.duckdb", published=published))
    command = [str(DBT), "build", "--profiles-dir", ".", "--no-send-anonymous-usage-stats"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Deprecat" not in done.stdout
    results = json.loads((tmp_path / "target" / "run_results.json").read_text())["results"]
    assert {each["status"] for each in results} == {"pass", "success"}
    assert len(results) > 30


@pytest.mark.skipif(FRICTIONLESS is None, reason="frictionless is not installed")
def test_frictionless_reads_every_table_of_the_package(published: Path) -> None:
    command = [str(FRICTIONLESS), "validate", "--json", str(published.with_name("datapackage.json"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["errors"] == [], "of the package itself"
    found = {
        (error["type"], error["note"], error["cell"])
        for task in report["tasks"]
        for error in [*task["errors"], *({"type": said, "note": "", "cell": ""} for said in task["warnings"])]
    }
    # It reads Parquet by pandas, which makes an empty cell of a whole number a fraction that is no number.
    assert found <= {("type-error", 'type is "integer/default"', "nan")}
    assert len(report["tasks"]) > 30
