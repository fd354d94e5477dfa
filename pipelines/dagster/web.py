"""Run Dagster's web application behind the guard, with the settings of Dagster's own command.

As a program, with HOST, PORT and a workspace file, it is for hosts without `up`.
"""

import os
import sys

import uvicorn
from dagster import DagsterInstance
from dagster._cli.workspace.cli_target import workspace_opts_to_load_target
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._utils.log import configure_loggers
from dagster_shared.cli import WorkspaceOpts
from dagster_webserver.app import create_app_from_workspace_process_context
from dagster_webserver.version import __version__

from pipelines.dagster.guard import ADDRESSES, Guard, addresses_in
from pipelines.home.dagster_folder import WEB_HOST

STATEMENT_TIMEOUT_MS, POOL_RECYCLE_SECONDS, POOL_OVERFLOW = 15_000, 3600, 20
"""The settings of Dagster's command for a storage in PostgreSQL."""


def serve_pages(workspace: str, host: str, port: int) -> None:
    """Serve the pages for the definitions that a workspace file names until the process is interrupted."""
    configure_loggers()
    target = workspace_opts_to_load_target(WorkspaceOpts(workspace=(workspace,)))
    addresses = addresses_in(os.environ.get(ADDRESSES, ""))
    with DagsterInstance.get() as instance:
        instance.optimize_for_webserver(STATEMENT_TIMEOUT_MS, POOL_RECYCLE_SECONDS, POOL_OVERFLOW)
        with WorkspaceProcessContext(instance, target, __version__) as context:
            app = Guard(create_app_from_workspace_process_context(context), addresses)
            uvicorn.run(app, host=os.environ.get(WEB_HOST) or host, port=port, log_level="warning")


if __name__ == "__main__":
    serve_pages(sys.argv[3], sys.argv[1], int(sys.argv[2]))
