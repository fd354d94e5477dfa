"""Processes with different clocks, as on different machines: a preloaded library answers for the system's clock.

Only the time of day differs. Monotonic clocks and the times of files stay as they are. Debian's `faketime` does not
work: with one of its settings Python's `time.sleep` fails, with the other it never returns.
"""

import os
import shutil
import subprocess
from pathlib import Path

COMPILER = shutil.which("cc")
APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Start a command in a new process namespace: others notice its death only by its silence, as on another machine."""
LACKING = "clocks apart need Linux, root, the program unshare, and a C compiler"
CAN = bool(COMPILER) and os.geteuid() == 0 and shutil.which("unshare") is not None
SOURCE = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    const char *off = getenv("CLOCK_OFF_SECONDS");
    if (!failed && off && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += atol(off);
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    (void)zone;
    if (!failed) *at = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


def library(folder: Path) -> Path:
    """Make the library; return its file."""
    (source := folder / "clocks.c").write_text(SOURCE)
    made = folder / "clocks.so"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-O2", "-o", made, source], check=True)
    return made


def off_by(minutes: int, made: Path) -> dict[str, str]:
    """Return the variables of a process whose clock is off. made: the library."""
    return {"LD_PRELOAD": str(made), "CLOCK_OFF_SECONDS": str(60 * minutes)}
