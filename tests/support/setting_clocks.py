"""Set the clock of this machine, as the ledger and the receive stage see it."""

from datetime import datetime, timedelta
from typing import Any, Self

import pytest

from pipelines.ledger import clock
from pipelines.receiving import receipt_times


def set_clock(monkeypatch: pytest.MonkeyPatch, off: timedelta) -> None:
    """Set the clock of this machine to a difference from the real time."""

    class Off(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Self:
            return cls.fromtimestamp((datetime.now(tz) + off).timestamp(), tz)

    for module in (clock, receipt_times):
        monkeypatch.setattr(module, "datetime", Off)
