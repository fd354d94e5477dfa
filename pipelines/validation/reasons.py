"""Why a record is rejected."""

from typing import Any, NamedTuple

from pipelines.validation.tables import REASON

RETRYABLE = ("QR-12", "QR-13", "QR-ITEM-", "QR-CREATE-", "FEED-ANS-03")


class Reason(NamedTuple):
    """Why a record is rejected. retryable: whether the target may think otherwise tomorrow."""

    stage: str
    rule: str
    expression: str | None
    column: str | None
    message: str
    retryable: bool = False

    def struct(self) -> dict[str, Any]:
        return dict(zip(REASON.names, self[1:], strict=True))
