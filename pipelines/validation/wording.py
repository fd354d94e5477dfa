"""Members of a body in the words of a target that differ from the interface's."""

from collections.abc import Mapping
from typing import Any

from pipelines.client.profiles import member

REWORDED = {"questionnaire", "payment", "recipient"}


def in_words(text: str, body: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """Return a body's text with what the target has in place of some members: its rules are the interface's till then.

    No text within a body can be taken for a member: quotes are escaped there.
    """
    for name in REWORDED & body.keys():
        ours = member(name, body[name])
        text = text.replace(ours, words.get(ours, ours), 1)
    return text
