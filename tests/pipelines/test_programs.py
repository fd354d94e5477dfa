"""The dictionary for programs, used by the programs: dbt builds over `sources.yml`, Frictionless reads the package.

Neither comes with the project: `pip install "dbt-core<2" dbt-duckdb frictionless pyarrow` there runs these tests.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.publishing import World, import_payments

DBT = shutil.which("dbt")
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


def test_frictionless_reads_every_table_of_the_package(published: Path) -> None:
    frictionless = pytest.importorskip("frictionless", reason="frictionless is not installed")
    package = frictionless.Package(str(published.with_name("datapackage.json")))
    found = {tuple(said) for each in package.resources for said in each.validate().flatten(["type", "note"])}
    # It reads Parquet by pandas: numbers beside an empty cell become fractions, and lists are arrays of another make.
    assert found <= {("type-error", f'type is "{kind}/default"') for kind in ("integer", "array")}
    assert len(package.resources) > 30
