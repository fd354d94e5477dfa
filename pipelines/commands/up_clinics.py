"""The supervisor of `chartferry up --clinics`: one Dagster for several clinics, each with processes of its own.

A clinic has a code server, which holds its definitions and its runs, and a bundled service where it names no target.
What fails of one clinic is started anew, at last once a minute, and holds up no other.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.commands.definitions import Reloading, reload, stamp_of
from pipelines.commands.supervising import LOOPBACK, CannotStart, Child, Say, alone, asked_to_end, free, signals
from pipelines.commands.up import REFERENCE, code_server, pages_and_daemon, service
from pipelines.home.dagster_folder import dagster_environment, prepare_shared_dagster
from pipelines.home.folder import make_private
from pipelines.home.logs import rotate
from pipelines.home.preparing import prepare_home
from pipelines.session.clinics import BadClinics, Clinic, read_clinics, shared_environment

WAITS_FOR_ALL_SECONDS = 120.0
"""How long Dagster's pages wait for the slowest clinic at the start."""
LONGEST_PAUSE = 60.0


@dataclass
class Ward:
    """A process of a clinic, or one that all share, under the supervisor's eyes.

    clinic: None for a process that all share: without it nothing goes on. due: when it is started anew. ailing: that it
    ended again and again, and has not lived long since.
    """

    child: Child
    environ: Mapping[str, str]
    clinic: Clinic | None = None
    due: float | None = None
    ailing: bool = False

    @property
    def name(self) -> str:
        return f"{self.clinic.name}: {self.child.name}" if self.clinic else self.child.name

    def start(self, say: Say) -> None:
        """Start the process. That of a clinic whose home has vanished is tried again later. Raises CannotStart."""
        self.due = None
        try:
            self.child.start(self.environ)
        except OSError as error:
            said = f"{self.name} cannot be started: {error.filename or 'a process'}: {error.strerror}"
            if self.clinic is None:
                raise CannotStart(said) from None
            say(f"{said}; trying again in {LONGEST_PAUSE:.0f} s; the other clinics go on")
            self.due = time.monotonic() + LONGEST_PAUSE

    def is_settled(self) -> bool:
        """True if the process is ready, or has ended, or is tried again later."""
        return self.due is not None or self.child.ended() or self.child.ready()

    def look(self, say: Say) -> None:
        """Start the process anew if it ended, that of a clinic after a pause. Raises CannotStart."""
        if self.due is not None:
            if time.monotonic() >= self.due:
                self.start(say)
            return
        if rotate(self.child.log):
            self.child.began = 0
        if self.child.ended():
            self._ended(say)

    def _ended(self, say: Say) -> None:
        words, often = self.child.last_words(), self.child.restarts_too_often()
        self.child.stop()
        if often and self.clinic is None:
            raise CannotStart(f"{self.name} ends again and again: {words}")
        self.ailing = often or (self.ailing and not self.child.lived_long())
        pause = LONGEST_PAUSE if self.ailing else 0.0
        when = f"starting it anew in {pause:.0f} s; the other clinics go on" if self.ailing else "starting it anew"
        say(f"{self.name} ended ({words}); {when}")
        self.due = time.monotonic() + pause


def up_clinics(home: Path, file: Path, environ: Mapping[str, str], web_port: int, say: Say) -> None:
    """Run the processes of all clinics until SIGINT or SIGTERM. Raises CannotStart, BadClinics and BadHome.

    home: of the deployment, with Dagster's own folder. web_port: 0 means any free port.
    """
    home, clinics = home.resolve(), read_clinics(file, environ)
    shared = shared_environment(file, environ)
    _apart_from(home, clinics)
    make_private(home)
    for clinic in clinics:
        prepare_home(clinic.home)
    folder, without = prepare_shared_dagster(home, {clinic.name: clinic.runs for clinic in clinics})
    with ExitStack() as stack:
        for each, of_home in ((folder, home), *((clinic.home / "dagster", clinic.home) for clinic in clinics)):
            stack.enter_context(alone(each, of_home))
        if without:
            say(f"{folder / 'dagster.yaml'} gives no share to {', '.join(without)}: remove it to have it written anew")
        runtime = Path(stack.enter_context(TemporaryDirectory(prefix="chartferry-")))
        port = free(web_port, "--web-port", "CHARTFERRY_WEB_PORT")
        sockets = {clinic.name: runtime / f"{clinic.name}.sock" for clinic in clinics}
        taken = {port, *(clinic.port for clinic in clinics)}
        of_clinics = [_of_clinic(clinic, sockets[clinic.name], home, taken) for clinic in clinics]
        wards = [ward for group in of_clinics for ward in group]
        common = {**dagster_environment(home, shared), "CHARTFERRY_HOME": str(home)}
        for_all = [Ward(child, common) for child in pages_and_daemon(folder, sockets, port)]
        pages = f"http://{LOOPBACK}:{port}"
        reloads = [_reloading(clinic, pages, say) for clinic in clinics]
        wakes = stack.enter_context(signals())
        stack.callback(_stop, of_clinics)
        stack.callback(_stop, [for_all])
        say("starting ...")
        if _start(wards, wakes, say) and _start(for_all, wakes, say):
            _tell(clinics, wards, pages, say)
            while not asked_to_end(wakes, 1.0):
                for reloading in reloads:
                    reloading.look()
                for ward in (*wards, *for_all):
                    ward.look(say)
        say("stopping ...")
    say("stopped")


def _stop(groups: Sequence[Sequence[Ward]]) -> None:
    """Stop groups of processes side by side, those of a group from the last to the first."""

    def stop(group: Sequence[Ward]) -> None:
        for ward in reversed(group):
            ward.child.stop()

    with ThreadPoolExecutor(len(groups)) as threads:
        list(threads.map(stop, groups))


def _apart_from(home: Path, clinics: Sequence[Clinic]) -> None:
    """Raise BadClinics if the deployment's home is a clinic's: Dagster's folder of one would be that of all."""
    for clinic in clinics:
        if clinic.home == home or clinic.home in home.parents:
            raise BadClinics(
                f"clinic {clinic.name}: its home is that of the deployment, {home}: name another by --home"
            )


def _of_clinic(clinic: Clinic, socket: Path, home: Path, taken: set[int]) -> list[Ward]:
    """Return the processes of a clinic. Raises CannotStart if its port cannot be used.

    home: of the deployment. taken: ports of others; the one that is chosen here is added.
    """
    environ = {**dagster_environment(clinic.home, clinic.environ), "DAGSTER_HOME": str(home / "dagster")}
    children = [code_server(socket, clinic.home / "dagster" / "code-server.log")]
    if clinic.bundled:
        (clinic.home / REFERENCE).mkdir(mode=0o700, exist_ok=True)
        port = clinic.port
        while not port or (port != clinic.port and port in taken):
            port = free(0, "port", "")
        taken.add(port)
        children.insert(0, service(clinic.home, free(port, "port in the file of clinics", "end what has it")))
    return [Ward(child, environ, clinic) for child in children]


def _reloading(clinic: Clinic, pages: str, say: Say) -> Reloading:
    return Reloading(
        lambda: stamp_of(clinic.home, clinic.environ),
        lambda: reload(pages, clinic.name),
        lambda said: say(f"{clinic.name}: {said}"),
    )


def _start(wards: Sequence[Ward], wakes: int, say: Say) -> bool:
    """Start processes and wait until each is ready; False if a signal came first. Raises CannotStart.

    A process of a clinic that ends, or is late, is waited for no longer: the others go on.
    """
    for ward in wards:
        ward.start(say)
    until = time.monotonic() + WAITS_FOR_ALL_SECONDS
    while waiting := [ward for ward in wards if not ward.is_settled()]:
        if asked_to_end(wakes, 0.2):
            return False
        if time.monotonic() > until and all(ward.clinic for ward in waiting):
            for ward in waiting:
                say(f"{ward.name} does not answer yet ({ward.child.last_words()}); the other clinics go on")
            break
    for ward in wards:
        if ward.child.ended() and ward.clinic is None:
            raise CannotStart(f"{ward.name} did not start: {ward.child.last_words()}")
    return True


def _tell(clinics: Sequence[Clinic], wards: Sequence[Ward], pages: str, say: Say) -> None:
    say(f"{'Dagster':9} {pages}")
    for clinic in clinics:
        urls = [ward.child.url for ward in wards if ward.clinic == clinic and ward.child.url]
        target = urls[0].rpartition("/")[0] if urls else clinic.environ["FHIR_BASE_URL"]
        say(f"{clinic.name:9} {clinic.home}  (inbox, feeds, batches, published and logs; its target is {target})")
    say("Ctrl-C ends all of it")
