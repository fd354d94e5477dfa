"""Read values of foreign JSON: return a value if it has the expected shape, else an empty one."""

from typing import Any


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def texts_in(value: Any) -> list[str]:
    """Return the texts in a list."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def as_object(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_text(value: Any) -> str | None:
    """Return the value if it is a text, else None."""
    return value if isinstance(value, str) else None
