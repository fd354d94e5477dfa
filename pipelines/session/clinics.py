"""A deployment of several clinics: the file that describes them, and the environment of each.

A clinic has its own home, feeds, target, secrets and limits. Its processes see none of another's. A clinic with a code
server is on another host: pages and daemon need only its name, that address and its limit.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

from fhir_service.paths import is_folder
from pipelines.home.dagster_folder import CLINIC, CODE_SERVER, INSECURE, is_set
from pipelines.home.executor import problem_of_executor
from pipelines.home.exits import BadSetting
from pipelines.home.preparing import INBOX
from pipelines.home.toml_files import text_of, toml_of
from pipelines.session.bundled import NAMES, is_bundled
from pipelines.session.named_target import named_target

PLAIN = re.compile(r"[a-z][a-z0-9]{0,29}")
VARIABLE, PREFIX = re.compile(r"[A-Z][A-Z0-9_]*"), re.compile(r"[A-Z][A-Z0-9_]*_")
KEYS: Mapping[str, type] = {
    "name": str,
    "home": str,
    "code_server": str,
    "feeds": list,
    "target": str,
    "environment": str,
    "runs": int,
    "port": int,
    "settings": dict,
}
ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?):(?P<port>[0-9]{1,5})")
EVERY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - nothing listens at it here
"""Addresses at which a server can listen but which nobody can reach, with those by which this host reaches it."""
SAID_BY_ALL = ("name", "code_server", "runs", "environment")
"""The keys that a file has for a clinic whose home is on another host.

Variables with the prefix of `environment` may still be set here, as after a move. No process gets them.
"""
USUAL_RUNS, MOST_RUNS = 2, 100
SET_ELSEWHERE = {
    "FHIR_BASE_URL": "target",
    "CHARTFERRY_HOME": "home",
    "CHARTFERRY_FEEDS": "feeds",
    CODE_SERVER: "code_server",
    CLINIC: "name",
}
"""Settings with a key of their own in the file, which must be used for them."""
SECRET = re.compile(r".*SECRET.*(?<!_FILE)|.*(TOKEN|KEY|PASSWORD)")
"""Names of settings that contain a secret, and do not name a file with it."""
LOGS_IN = re.compile(r"://[^/?#]*@|[?&]password=", re.IGNORECASE)
"""Matches an address with a user or a password."""
OF_SOME_CLINIC = ("_FHIR_CLIENT_SECRET", "_FHIR_TOKEN")
"""The ends of secrets' names, also for clinics that the file does not name, such as removed ones."""
OF_ALL = ("CHARTFERRY_COPIES", "CHARTFERRY_BATCHES", "CHARTFERRY_INBOX")
"""Settings of a place for all clinics: each clinic has its own place below it."""
OF_ONE_HOME = ("CHARTFERRY_HOME", "CHARTFERRY_FEEDS", "CHARTFERRY_LEDGER", CODE_SERVER, CLINIC)
"""Settings of the deployment's environment that clinics must not share."""


@dataclass(frozen=True)
class Clinic:
    """A clinic of a deployment.

    environ: the environment of its processes. bundled: True if its target is the bundled service. port: of that
    service, 0 for any. runs: how many Dagster runs it may have under way.
    """

    name: str
    home: Path
    environ: Mapping[str, str]
    bundled: bool
    port: int = 0
    runs: int = USUAL_RUNS


@dataclass(frozen=True)
class CodeServer:
    """The code server of a clinic on another host. runs: how many Dagster runs the clinic may have under way."""

    clinic: str
    address: str
    runs: int

    @property
    def at(self) -> tuple[str, int]:
        """Host and port of the address. The file was checked to have both."""
        host, _, port = self.address.rpartition(":")
        return host, int(port)


def read_clinics(file: Path, environ: Mapping[str, str], only: str | None = None) -> list[Clinic]:
    """Return the clinics of a file that run on this host: those without a code server. Raises BadSetting.

    environ: of the deployment. only: the name of the one clinic to check and return, also if it has a code server.
    """
    said = _said(file)
    prefixes = [each["environment"] for each in said if PREFIX.fullmatch(str(each.get("environment")))]
    if only is not None:
        names = ", ".join(str(each.get("name")) for each in said)
        said = [each for each in said if each.get("name") == only]
        if not said:
            raise BadSetting(f"{file.name}: has no clinic {only}: it has {names}")
    named = [name for name in NAMES if environ.get(name)]
    if named:
        raise BadSetting(f"{named[0]} is set, and each clinic of {file.name} has its own target: unset it")
    for at, clinic in enumerate(said, 1):
        for problem in _problems(clinic):
            raise BadSetting(f"{file.name}: clinic {clinic.get('name', at)}: {problem}")
    _check_apart(file, said)
    common = without_clinics(environ, prefixes)
    here = [clinic for clinic in said if only or "code_server" not in clinic]
    return [_clinic(file, clinic, environ, common) for clinic in here]


def read_code_servers(file: Path) -> list[CodeServer]:
    """Return the code servers of the file's clinics on other hosts. `read_clinics` must have checked the file."""
    said = [clinic for clinic in _said(file) if "code_server" in clinic]
    return [CodeServer(each["name"], each["code_server"], each.get("runs", USUAL_RUNS)) for each in said]


def without_clinics(environ: Mapping[str, str], prefixes: Sequence[str]) -> dict[str, str]:
    """Return the part of the deployment's environment that all its processes share: no target and no secret."""
    ours = ("FHIR_", *prefixes)
    kept = {name: value for name, value in environ.items() if not name.startswith(ours) and name not in OF_ONE_HOME}
    return {name: value for name, value in kept.items() if not name.endswith(OF_SOME_CLINIC)}


def shared_environment(file: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the processes that all clinics share. Raises BadSetting."""
    return without_clinics(environ, [clinic["environment"] for clinic in _said(file) if "environment" in clinic])


def _said(file: Path) -> list[dict[str, Any]]:
    """Return the file's tables, one for each clinic, as they are there."""
    said = toml_of(text_of(file, BadSetting, str(file)), file.name, BadSetting)
    found = said.pop("clinic", None)
    if said:
        raise BadSetting(f"{file.name}: {next(iter(said))}: there is no such key: each clinic is a [[clinic]]")
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        raise BadSetting(f"{file.name}: names no clinic: each is a [[clinic]] with name and home")
    return found


def _problems(said: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of one clinic by itself."""
    for key, value in said.items():
        if key not in KEYS:
            yield f"{key}: there is no such key ({', '.join(KEYS)})"
        elif not isinstance(value, KEYS[key]) or isinstance(value, bool):
            yield f"{key}: is not of the right kind ({KEYS[key].__name__})"
    if not said.get("name"):
        yield "has no name"
    if not said.get("home") and "code_server" not in said:
        yield "has no home"
    if not PLAIN.fullmatch(said["name"]):
        yield "name: is no plain name: up to 30 small letters and digits, a letter first"
    yield from problems_of_code_server(said)
    if not 1 <= said.get("runs", USUAL_RUNS) <= MOST_RUNS:
        yield f"runs: is not from 1 to {MOST_RUNS}"
    if not 0 <= said.get("port", 0) <= 65535:
        yield "port: is not from 0 to 65535"
    if "environment" in said and not PREFIX.fullmatch(said["environment"]):
        yield "environment: is no prefix of variables: capital letters, digits and _, which ends it"
    if not all(isinstance(folder, str) for folder in said.get("feeds", ())):
        yield "feeds: is not a list of folders"
    if "\0" in said.get("target", ""):
        yield "target: holds a character that no address has"
    yield from _problems_of_settings(said.get("settings", {}))


def _problems_of_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if not VARIABLE.fullmatch(name) or not isinstance(value, str) or "\0" in value:
            yield f"settings: {name}: is not a variable of the environment with a text as its value"
        if name in SET_ELSEWHERE:
            yield f"settings: {name}: is said by {SET_ELSEWHERE[name]}"
        if SECRET.fullmatch(name):
            yield f"settings: {name}: is a secret: put it into a file of its own, or into the environment"
        if LOGS_IN.search(str(value)):
            yield f"settings: {name}: is an address with a user or a password: put it into the environment"


def _check_apart(file: Path, said: Sequence[Mapping[str, Any]]) -> None:
    """Raise BadSetting if two clinics share a name, a home, or the prefix of their variables."""
    for one, other in combinations(said, 2):
        if one["name"] == other["name"]:
            raise BadSetting(f"{file.name}: two clinics have the name {one['name']}")
    for one, other in permutations(said, 2):
        both = f"{file.name}: clinics {one['name']} and {other['name']}"
        if "code_server" in one and one["code_server"] == other.get("code_server"):
            raise BadSetting(f"{both} have one code server, {one['code_server']}: each needs its own")
        if "environment" in one and other.get("environment", "").startswith(one["environment"]):
            raise BadSetting(
                f"{both}: their variables begin alike, with {one['environment']}: each needs a prefix of its own"
            )
        if not one.get("home") or not other.get("home") or host_of(one) != host_of(other):
            continue  # their places are on different disks
        homes = (_beside(file, one["home"]), _beside(file, other["home"]))
        if one.get("port") and one["port"] == other.get("port"):
            raise BadSetting(f"{both} have one port, {one['port']}: each needs its own")
        if homes[0] == homes[1]:
            raise BadSetting(f"{both} have one home, {homes[0]}: each needs its own")
        if homes[0] in homes[1].parents:
            raise BadSetting(f"{both}: the home of one lies in that of the other, {homes[0]}: each needs its own")


def _beside(file: Path, name: str) -> Path:
    """Return a path that the file names. A relative path is relative to the file's folder. Raises BadSetting."""
    try:
        return (file.resolve().parent / Path(name).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):  # a user that does not exist, or a character that no path can have
        raise BadSetting(f"{file.name}: {name!r} is not a path on this machine") from None


def _clinic(file: Path, said: Mapping[str, Any], environ: Mapping[str, str], common: Mapping[str, str]) -> Clinic:
    """Return a clinic with its environment. Raises BadSetting."""
    name, where = said["name"], f"{file.name}: clinic {said['name']}"
    if not said.get("home"):
        raise BadSetting(f"{where}: has no home here: run this on the host of its code server, {said['code_server']}")
    home = _beside(file, said["home"])
    if not is_folder(home):  # made here, a home whose disk is not mounted would begin with an empty ledger
        raise BadSetting(f"{where}: home: {home} is not there: make the folder, or mount it")
    if not is_folder(home / INBOX):
        raise BadSetting(f"{where}: home: {home} has no folder {INBOX}: mount it, or make that folder for a new home")
    feeds = [_beside(file, folder) for folder in said.get("feeds", ())]
    for folder in feeds:
        if not is_folder(folder):
            raise BadSetting(f"{where}: feeds: {folder}: there is no such folder")
    prefix = said.get("environment")
    own = {each.removeprefix(prefix): value for each, value in environ.items() if prefix and each.startswith(prefix)}
    if again := next((each for each in SET_ELSEWHERE if each in own), None):
        raise BadSetting(f"{where}: {prefix}{again} is set: it is said by {SET_ELSEWHERE[again]}")
    target = {"FHIR_BASE_URL": said["target"]} if said.get("target") else {}
    places = {each: f"{common[each].rstrip('/')}/{name}" for each in OF_ALL if common.get(each)}
    settings = {**common, **places, **said.get("settings", {}), **own, **target}
    settings |= {"CHARTFERRY_HOME": str(home), CLINIC: name}
    settings |= {CODE_SERVER: said["code_server"]} if "code_server" in said else {}
    settings |= {"CHARTFERRY_FEEDS": os.pathsep.join(map(str, feeds))} if feeds else {}
    if problem := problem_of_executor(settings):
        raise BadSetting(f"{where}: {problem}")
    bundled = is_bundled(settings)
    if not bundled:
        if not settings.get("FHIR_BASE_URL"):
            raise BadSetting(f"{where}: has credentials and no target: say target")
        try:
            named_target(settings, is_set(settings, INSECURE))
        except BadSetting as error:
            said_so = str(error).replace("--insecure", f"{INSECURE}=yes")  # the command `clinic` has no such option
            raise BadSetting(f"{where}: {said_so}") from None
    return Clinic(name, home, settings, bundled, said.get("port", 0), said.get("runs", USUAL_RUNS))


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return host and port of an address; None if it is none. The host of an IPv6 address keeps its brackets."""
    found = ADDRESS.fullmatch(address)
    if not found or not 1 <= int(found["port"]) <= 65535:
        return None
    return found["host"], int(found["port"])


def host_of(said: Mapping[str, Any]) -> str:
    """Return the host of a clinic's home; empty text for the host of the pages."""
    found = host_and_port(said.get("code_server", ""))
    return found[0] if found else ""


def problems_of_code_server(said: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a clinic's code server."""
    address = said.get("code_server")
    if address is None:
        return
    found = host_and_port(address)
    if not found:
        yield f"code_server: {address!r} is no address: write HOST:PORT, such as 10.0.0.5:4000"
    elif found[0] in EVERY:
        yield f"code_server: nobody reaches {found[0]}: name the address of its host"
    if not said.get("home"):
        for key in said:
            if key not in SAID_BY_ALL:
                yield f"{key}: is of no use without home: say it in the file on the clinic's host"
