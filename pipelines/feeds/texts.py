"""Texts as they are compared: keys, names of columns, and what a feed file says of values."""

import unicodedata


def composed(text: str) -> str:
    """The text in one form (NFC): one system writes ä as a letter, another as a with dots behind it."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)
