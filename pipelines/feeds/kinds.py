"""The kinds of record, by name. A further kind is one module and one line here."""

from pipelines.feeds.answers import ANSWERS
from pipelines.feeds.payments import PAYMENTS
from pipelines.feeds.record import Kind
from pipelines.feeds.tasks import TASKS

KINDS: dict[str, Kind] = {kind.name: kind for kind in (PAYMENTS, ANSWERS, TASKS)}
