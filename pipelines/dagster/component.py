"""The imports and reports of a home as a Dagster component, for a `defs.yaml` of another project."""

from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from pipelines.dagster.building import build


class ChartferryImports(dg.Component, dg.Model, dg.Resolvable):
    """The imports of a home's feeds, its published tables, checks, sensors and schedules.

    home: the state folder. feeds: folders with further feed files. Relative paths start at the project's root.
    """

    home: str
    feeds: Sequence[str] = ()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        root = Path(context.project_root)
        return build(root / self.home, [root / folder for folder in self.feeds])
