"""The processes of a supervisor: start them together, restart those that end, and stop them."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from pipelines.commands.supervising import CannotStart, ChildProcess, Say, asked_to_end, signals
from pipelines.home.logs import rotate
from pipelines.session.clinics import Clinic

WAITS_FOR_CLINICS_SECONDS = 120.0
"""Seconds that Dagster's pages wait for the slowest clinic at the start."""
READY_WITHIN_SECONDS = 600.0
LONGEST_PAUSE = 60.0


@dataclass
class SupervisedProcess:
    """A supervised process of one clinic, or of all clinics.

    * clinic: None for a process of all clinics, which nothing can work without.
    * due: the time of its next start; None if none is due.
    * ailing: True if it ended repeatedly, and has not lived long since.
    """

    child: ChildProcess
    environ: Mapping[str, str]
    clinic: Clinic | None = None
    due: float | None = None
    ailing: bool = False

    @property
    def name(self) -> str:
        return f"{self.clinic.name}: {self.child.name}" if self.clinic else self.child.name

    def start(self, say: Say) -> None:
        """Start the process. A clinic's process whose home has vanished is tried again later. Raises CannotStart."""
        self.due = None
        try:
            self.child.start(self.environ)
        except OSError as error:
            said = f"{self.name} cannot be started: {error.filename or 'a process'}: {error.strerror}"
            if self.clinic is None:
                raise CannotStart(said) from None
            say(f"{said}; trying again in {LONGEST_PAUSE:.0f} s, all other clinics continue")
            self.due = time.monotonic() + LONGEST_PAUSE

    def is_settled(self) -> bool:
        """True if the process is ready, has ended, or is to be tried again later."""
        return self.due is not None or self.child.ended() or self.child.ready()

    def look(self, say: Say) -> None:
        """Restart the process if it ended; a clinic's failing process after a pause. Raises CannotStart."""
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
            raise CannotStart(f"{self.name} ended too often, and is not started again: {words}")
        self.ailing = often or (self.ailing and not self.child.lived_long())
        pause = LONGEST_PAUSE if self.ailing else 0.0
        when = f"starting it again in {pause:.0f} s, all other clinics continue" if self.ailing else "starting it again"
        say(f"{self.name} ended ({words}); {when}")
        self.due = time.monotonic() + pause


def supervise(
    groups: Sequence[Sequence[SupervisedProcess]],
    shared: Sequence[SupervisedProcess],
    looks: Sequence[Callable[[], None]],
    tell: Callable[[], None],
    say: Say,
) -> None:
    """Run processes until SIGINT or SIGTERM: those of groups first, and then the others, which are ended first.

    looks: are called once a second. tell: says where all of them are, once they are ready. Raises CannotStart.
    """
    wards = [ward for group in groups for ward in group]
    with ExitStack() as stack:
        wakes = stack.enter_context(signals())
        stack.callback(stop, groups)
        stack.callback(stop, [shared])
        say("starting ...")
        if start(wards, wakes, say) and start(shared, wakes, say):
            tell()
            watch([*wards, *shared], wakes, say, looks)
        say("stopping ...")


def stop(groups: Sequence[Sequence[SupervisedProcess]]) -> None:
    """Stop groups of processes in parallel; within a group from the last to the first."""

    def stop_one_by_one(group: Sequence[SupervisedProcess]) -> None:
        for ward in reversed(group):
            ward.child.stop()

    with ThreadPoolExecutor(len(groups) or 1) as threads:  # a deployment may have all clinics elsewhere
        list(threads.map(stop_one_by_one, groups))


def start(wards: Sequence[SupervisedProcess], wakes: int, say: Say) -> bool:
    """Start processes and wait until each is ready; False if a signal came first.

    A clinic's process that ends or is late is not waited for: the others continue. Raises CannotStart for a failing
    process of all clinics.
    """
    for ward in wards:
        ward.start(say)
    began = time.monotonic()
    while waiting := [ward for ward in wards if not ward.is_settled()]:
        if asked_to_end(wakes, 0.2):
            return False
        _check_shared(wards)
        shared, late = [ward for ward in waiting if ward.clinic is None], time.monotonic() - began
        if shared and late > READY_WITHIN_SECONDS:
            raise CannotStart(f"{shared[0].name} does not answer: {shared[0].child.last_words()}")
        if not shared and late > WAITS_FOR_CLINICS_SECONDS:
            for ward in waiting:
                say(f"{ward.name} does not answer yet ({ward.child.last_words()}); all other clinics continue")
            break
    _check_shared(wards)
    return True


def _check_shared(wards: Sequence[SupervisedProcess]) -> None:
    for ward in wards:
        if ward.clinic is None and ward.child.ended():
            raise CannotStart(f"{ward.name} did not start: {ward.child.last_words()}")


def watch(wards: Sequence[SupervisedProcess], wakes: int, say: Say, looks: Sequence[Callable[[], None]] = ()) -> None:
    """Restart processes that end by themselves, until a signal arrives. Raises CannotStart.

    looks: called once a second.
    """
    while not asked_to_end(wakes, 1.0):
        for look in looks:
            look()
        for ward in wards:
            ward.look(say)
