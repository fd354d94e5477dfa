"""The kinds of record, by name and form. A new kind is one module and one line here."""

from pipelines.feeds.kinds.answers import ANSWERS
from pipelines.feeds.kinds.payments import PAYMENTS
from pipelines.feeds.kinds.tasks import TASKS, TASKS_BY_COMMENT
from pipelines.feeds.kinds.wide import WIDE_ANSWERS
from pipelines.feeds.terms.columns import RecordKind
from pipelines.feeds.terms.schema import FeedFile

KINDS: dict[str, RecordKind] = {kind.name: kind for kind in (PAYMENTS, ANSWERS, TASKS)}


def kind_of(file: FeedFile) -> RecordKind:
    """Return the kind of a feed's records. A column per question, and a row per comment, have kinds of their own."""
    if file.questions:
        return WIDE_ANSWERS
    return TASKS_BY_COMMENT if file.one_row_per else KINDS[file.kind]
