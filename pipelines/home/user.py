"""The name of the user that a decision by hand is recorded with."""

import os
import pwd


def user_name() -> str:
    """Return this process's account by the system, which no variable can change, and the user who called `sudo`."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    caller = os.environ.get("SUDO_USER")
    return f"{name} ({caller})" if caller else name
