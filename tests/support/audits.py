"""Audit files in tests: read their lines, add records, and run `audit verify`."""

from pathlib import Path

from click.testing import CliRunner, Result

from fhir_service.__main__ import main
from fhir_service.audit.chain import ChainedFile
from tests.conftest import Running

READ = b'{"interaction":"read","type":"Task"}'


def audit_of(running: Running) -> Path:
    return running.service.audit.path


def verify(path: Path, *former: Path | str) -> Result:
    environment = {"FHIR_SERVICE_AUDIT": str(path), "FHIR_SERVICE_STORE": "unused"}
    return CliRunner(env=environment).invoke(main, ["audit", "verify", *map(str, former)])


def written(path: Path, *numbers: int) -> None:
    """Run a process that adds an audit record for each number."""
    file = ChainedFile(path)
    for number in numbers:
        file.append([b'{"n":%d}' % number], keep=True)
    file.close()


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)
