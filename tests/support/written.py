"""Files that tests write."""

from pathlib import Path

GERMAN = """Kassenbuch der Praxis
Beleg;Patient;Betrag;Gebucht am;Text
B-1;Meier-77;1.234,50 €;02.05.2024 08:30;Größe
B-2;Schulz-78;12,50 €;13.05.2024 09:00;"a; b"
B-3;Meier-77;7,00 €;14.05.2024 10:15;
B-4;Braun-79;7,00 €;15.05.2024 10:15;
"""


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
