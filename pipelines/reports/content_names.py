"""The short name of a questionnaire's content, by which a run says what its answers were checked by."""

import hashlib

from pydantic import BaseModel


def content_name(questionnaire: BaseModel) -> str:
    """Return a short name for the content of a questionnaire, as the interface reads it."""
    return hashlib.sha256(questionnaire.model_dump_json().encode()).hexdigest()[:12]
