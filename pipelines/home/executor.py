"""The setting that runs steps of imports on other hosts, and its conditions."""

from collections.abc import Mapping
from importlib.util import find_spec

from pipelines.home.dagster_folder import CLINIC

EXECUTOR = "CHARTFERRY_EXECUTOR"
"""The setting that selects the executor for steps of imports."""
ON_OTHER_HOSTS: Mapping[str, str] = {"celery": "dagster_celery", "kubernetes": "dagster_k8s"}
"""The package of each executor that runs steps on other hosts. The extra to install has the executor's name."""


def problem_of_executor(environ: Mapping[str, str]) -> str | None:
    """Return a sentence if steps cannot run on other hosts, or would get another clinic's settings; else None."""
    named = environ.get(EXECUTOR, "")
    if named not in ON_OTHER_HOSTS:
        return None
    if environ.get(CLINIC):  # the clinics of a deployment would share a queue, or the settings of pods
        return f"{EXECUTOR} is {named}, which is for a deployment of one home: unset it"
    if find_spec(ON_OTHER_HOSTS[named]) is None:
        package = ON_OTHER_HOSTS[named].replace("_", "-")
        return f"{EXECUTOR} needs {package}, which is not installed: pip install 'chartferry[{named}]'"
    return None
