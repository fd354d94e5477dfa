"""The Dagster definitions of the home that the environment names. `workspace.yaml` names this module.

`build` returns the definitions of any home, to be merged into another Dagster project.
"""

import os

from pipelines.dagster.building import build, build_definitions
from pipelines.dagster.code_server import end_when_blind

__all__ = ["build", "build_definitions", "defs"]

os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "yes")
end_when_blind()
defs = build_definitions(os.environ)
