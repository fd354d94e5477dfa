"""Read from a session's target what the published tables are made of: its reports, its questionnaires, and names."""

from pipelines.client.replies import TargetUnusable
from pipelines.reports.sweep import RESOURCE, Sweep, SweepIncomplete, sweep
from pipelines.reports.words import QUESTIONNAIRE, keep_names
from pipelines.session.session import Session, reading


def sweep_target(session: Session) -> Sweep:
    """Sweep the diagnostic reports, and renew the words that stand beside ids. Raises `TargetUnusable`.

    Words that cannot be read hold nothing up: the tables have them as last read.
    """
    client, home, target = session.connection.client, session.home, session.target
    with reading(RESOURCE):
        swept = sweep(client, home, target)
    try:
        sweep(client, home, target, resource_type=QUESTIONNAIRE)
        keep_names(home, target, session.connection.names())
    except (SweepIncomplete, TargetUnusable) as error:
        session.progress.say(f"questionnaires or names could not be read ({error}): the tables have those last read")
    return swept
