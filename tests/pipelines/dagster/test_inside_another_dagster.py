"""The imports of a home within another Dagster project: by a function, and as a component."""

from pathlib import Path

import dagster as dg
import pytest

from pipelines.dagster.component import ChartferryImports
from pipelines.definitions import build
from tests.support.commands import forget_settings
from tests.support.exports import feed_file


@pytest.fixture
def feeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    forget_settings(monkeypatch)
    says = 'name = "front_desk"\nkind = "payments"\nsource = "front_desk"\nfiles = ["desk*.csv"]\n'
    return feed_file(tmp_path, "front_desk", says, "payment_id,patient_id,amount,paid_on").parent


def keys(defs: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}


def test_a_home_is_merged_into_the_definitions_of_another_project(tmp_path: Path, feeds: Path) -> None:
    @dg.asset
    def theirs() -> None:
        """An asset of the other project."""

    other = dg.Definitions(assets=[theirs], executor=dg.multiprocess_executor)
    merged = dg.Definitions.merge(other, build(tmp_path / "home", [feeds]))
    dg.Definitions.validate_loadable(merged)
    assert {"theirs", "front_desk/loaded", "payments/loaded", "reports/published"} <= keys(merged)
    assert merged.executor is dg.multiprocess_executor
    inbox = merged.get_repository_def().get_sensor_def("inbox")
    assert str(tmp_path / "home" / "inbox") in (inbox.description or "")


@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")  # Dagster's own reading of YAML
def test_a_component_gives_the_same_definitions(tmp_path: Path, feeds: Path) -> None:
    made = dg.build_defs_for_component(ChartferryImports(home=str(tmp_path / "home"), feeds=[str(feeds)]))
    assert keys(made) == keys(build(tmp_path / "home", [feeds]))
    yaml = f"home: {tmp_path / 'home'}\nfeeds:\n  - {feeds}\n"
    read = ChartferryImports.resolve_from_yaml(yaml)
    assert (read.home, list(read.feeds)) == (str(tmp_path / "home"), [str(feeds)])
