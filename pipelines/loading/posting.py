"""One row in one request, tried again only while it is sure that nothing was done."""

from collections.abc import Callable

from pipelines.client.client import FhirClient
from pipelines.client.replies import NotDone, NotSent, Refused, Reply, Unknown, unusable
from pipelines.ledger.lease import LeaseLost
from pipelines.loading.sending import TOO_LARGE, Posted, Result, Row, dated

Post = Callable[[FhirClient, str, Row], Posted]


def post(client: FhirClient, resource_type: str, row: Row, confirm: Callable[[], None] = lambda: None) -> Posted:
    """One row, tried again with pauses only while it is sure that nothing was done.

    confirm: called before it is tried again; raises `LeaseLost` when another loader took over during the pause.
    """
    pauses, tries, body = client.patience.pauses(), 0, dated(resource_type, row).encode()
    while True:
        tries, asked = tries + 1, None
        try:
            return Posted(_made(client.create(resource_type, body)))
        except Refused as error:
            return Posted(_refused(error.reply))
        except Unknown:
            return Posted(Result("in_doubt"))
        except NotSent as error:
            problem, asked = str(error), error.retry_after
            pauses = iter(()) if error.final else pauses
        except NotDone as error:
            if error.reply.status == TOO_LARGE:
                return Posted(_refused(error.reply))
            problem, asked = str(error), error.reply.retry_after
        pause = next(pauses, None)
        if pause is None:
            state = "in_doubt" if row.intended else "planned"
            return Posted(Result(state), unusable(problem, tries))
        client.patience.wait(pause, asked)
        try:
            confirm()
        except LeaseLost as error:
            return Posted(Result("in_doubt"), str(error))


def _made(reply: Reply) -> Result:
    return Result("created", reply.resource_id, reply.status)


def _refused(reply: Reply) -> Result:
    return Result("refused", None, reply.status, reply.outcome)
