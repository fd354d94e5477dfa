"""Find every reason of a refusal. A create is refused for the first reason; `$validate`, if offered, tells the others.

Once the load is to end, nothing more is asked: a paced target would take minutes for the rows of one bundle.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from pipelines.client.replies import TOO_LARGE, NoResult
from pipelines.feeds.mapping.origins import Origins
from pipelines.ledger.rows import Reason
from pipelines.loading.load import Load
from pipelines.loading.row import RowResult
from pipelines.loading.sending import OF_THE_CONTENT

MOST = 5_000
"""Refused rows of one load whose reasons are asked for. If more are refused, it is mostly for one reason."""
FAILURES = 3


class RefusalReasons:
    """Questions about refused rows of one load, limited in number. Safe to use from several threads. Reasons that
    cannot be had are left out.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._left = MOST if load.resource in load.capabilities.validates else 0

    def whole(self, result: RowResult, body: str | bytes) -> RowResult:
        """Return the result of a row with all reasons, if the row was refused for its content. body: as it was sent."""
        of_the_content = result.status in OF_THE_CONTENT and result.status != TOO_LARGE
        is_over = self._left <= 0 or self._load.client.patience.has_ended
        if result.state != "refused" or not result.outcome or not of_the_content or is_over:
            return result
        self._left -= 1
        try:
            issues = self._load.client.validate(self._load.resource, body)
        except NoResult:
            self._left -= MOST // FAILURES
            return result
        return result._replace(others=_others(result.outcome, issues))


def reasons_of(result: RowResult, body: str, origins: Origins) -> list[Reason]:
    """Return the reasons of a refusal in the target's own words, with the source's columns. body: as it was mapped."""
    return [
        _reason(result, issue, partial(origins.in_body, body=body)) for issue in (result.outcome or {}, *result.others)
    ]


def _reason(result: RowResult, issue: dict[str, Any], column: Callable[[str], str | None]) -> Reason:
    """Return the reason of an issue: its code as the rule, its text and diagnostics as the sentence."""
    words = [str(issue[name]) for name in ("text", "diagnostics") if issue.get(name)]
    expression = str(issue.get("expression") or "")
    return Reason(
        str(issue.get("code") or f"HTTP-{result.status}"),
        expression or None,
        column(expression),
        ": ".join(words) or f"the target refused it (HTTP {result.status})",
        result.status == 422,
    )


def _others(first: dict[str, Any], issues: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the errors among these issues that differ from the first."""
    others: list[dict[str, Any]] = []
    for issue in issues:
        said = {name: value for name, value in issue.items() if name != "severity"}
        if issue["severity"] in ("error", "fatal") and said not in (first, *others):
            others.append(said)
    return tuple(others)
