"""Run `fhir-service` in a separate process or in this one, or serve, without the user's settings."""

import contextlib
import os
import subprocess
import sys

from click.testing import CliRunner

from fhir_service.__main__ import main
from tests.support.starting import finish, start

COMMAND = [sys.executable, "-m", "fhir_service"]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("FHIR_SERVICE_")}

UNHEARD = {"FHIR_SERVICE_AUDIT": os.devnull}


def run(*arguments, env=None, cwd=None):
    """Run a command in a separate process."""
    return finish([*COMMAND, *map(str, arguments)], env=CLEAN | (env or {}), cwd=cwd, timeout=60)


def called(*arguments, **settings):
    """Run a command in this process, which is faster."""
    umask = os.umask(0)
    try:
        return CliRunner(env=dict.fromkeys(set(os.environ) - set(CLEAN)) | settings).invoke(
            main, [str(one) for one in arguments]
        )
    finally:
        os.umask(umask)


@contextlib.contextmanager
def serving(*arguments, **options):
    """Run a service in a separate process. Yield it, and the line that it printed."""
    command = [*COMMAND, "serve", *map(str, arguments)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    process = start(command, text=True, env=CLEAN, **pipes)
    try:
        assert process.stdout
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def command_output(*arguments):
    """Return the output of a command on a database. Asserts that it succeeds and writes no audit."""
    done = called(*arguments, **UNHEARD)
    assert done.exit_code == 0, done.output
    return done.stdout
