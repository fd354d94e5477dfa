"""Words of a target on the page: without numbers, names and quotations."""

import pytest

from pipelines.reports.reasons import without_names, without_quotes


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Jane Doe may not be billed", "… may not be billed"),
        ("The payment of jane o'neill, born 12 May 1970", "The payment of …, born …"),
        ("Unprocessable entity", "Unprocessable entity"),
        ("OperationOutcome for 李雷 and Łukasz", "OperationOutcome for … and …"),
        ("HAPI-0550: duplicate key value", "… duplicate key value"),
    ],
)
def test_words_of_a_target_show_no_number_and_no_name(message: str, shown: str) -> None:
    """STATE-HOME-04: one that is in the data not even in small letters."""
    assert without_names(message, {"jane", "neill"}) == shown


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "Question received an invalid response option code: Jane Doe",
            "Question received an invalid response option code: …",
        ),
        ("note janedoe is not known", "note … is not known"),
        ("a note is expected", "a note is expected"),
        ("Encounter/jane belongs to another note than doe-1", "Encounter/… belongs to another note than …"),
        ("the value 'Jane Doe' is no code", "the value … is no code"),
        ("the amount is above 9999999.99", "the amount is above 9999999.99"),
        ("no entry in the crosswalk patients", "no entry in the crosswalk patients"),
    ],
)
def test_an_example_shows_nothing_that_a_message_quotes(message: str, shown: str) -> None:
    assert without_quotes(message) == shown
