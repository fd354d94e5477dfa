"""Reasons why a record is rejected, and the meanings of warnings."""

from typing import NamedTuple

RETRYABLE = ("QR-12", "QR-13", "QR-ITEM-", "QR-CREATE-", "FEED-ANS-03", "TARGET-07")

WARNINGS = {
    "QR-RULE-02": "answers that a score needs are missing",
    "QR-CREATE-01": "options of one question with one code",
    "QNR-RULE-03": "one code on several questions",
    "LEDGER-24": "the last line has no line break: the file may be cut off",
    "LEDGER-25": "rows that repeat the header, not taken",
    "TEXT-BETWEEN": "texts between rows are not records; the rows below them were taken",
    "LOOKS-LIKE-TOTAL": "a row has the sum of those before it as its amount",
    "WORKBOOK-ZEROS": "columns of a workbook with numbers that may have lost their zeros",
    "WORKBOOK-HIDDEN": "hidden rows of a workbook, read like the others",
    "WORKBOOK-SHEETS": "hidden sheets of a workbook, not read",
    "JOIN-PARTNERS": "rows of joined files without a partner",
    "ZIP-FILES": "files of a zip archive that the feed does not take",
    "FEED-ANS-03": "several active questionnaires with one name or code",
}
"""The meaning of each warning, except for rules that other servers may lack."""


class Reason(NamedTuple):
    """A reason why a record is rejected. retryable: True if the target may judge otherwise later.

    line: the row that the reason is about, in a record of several rows; None if it is about all of them.
    """

    stage: str
    rule: str
    expression: str | None
    column: str | None
    message: str
    retryable: bool = False
    line: int | None = None

    def at(self, place: str) -> "Reason":
        """Return the reason with the place of its row before its sentence."""
        return self._replace(message=f"{place}: {self.message}")
