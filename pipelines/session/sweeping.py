"""Read what the published tables are made of from a session's target: reports, their results, questionnaires, names."""

from pipelines.client.replies import TargetUnusable
from pipelines.reports.pages import RESOURCE, SweepIncomplete
from pipelines.reports.results import RESULT, sweep_results
from pipelines.reports.sweep import Sweep, sweep
from pipelines.reports.words import QUESTIONNAIRE, keep_names
from pipelines.session.reading import reading
from pipelines.session.session import Session


def sweep_target(session: Session) -> Sweep:
    """Sweep the diagnostic reports and their results, and renew the words that stand beside ids.

    Results and words that cannot be read hold nothing up: the tables have them as last read. Raises `TargetUnusable`.
    """
    client, home, target = session.connection.client, session.home, session.target
    with reading(RESOURCE):
        swept = sweep(client, home, target)
    try:
        if RESULT in session.connection.capabilities.searched:
            sweep_results(client, home, target)
    except (SweepIncomplete, TargetUnusable) as error:
        session.progress.say(f"results of reports could not be read ({error}): the tables have those last read")
    try:
        sweep(client, home, target, resource_type=QUESTIONNAIRE)
        keep_names(home, target, session.connection.names())
    except (SweepIncomplete, TargetUnusable) as error:
        session.progress.say(f"questionnaires or names could not be read ({error}): the tables have those last read")
    return swept
