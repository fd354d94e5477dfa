"""Files that name the clinics of a deployment."""

from pathlib import Path

TWO = '[[clinic]]\nname = "north"\nhome = "north"\n[[clinic]]\nname = "south"\nhome = "south"\n'


def clinics_file(folder: Path, text: str) -> Path:
    for name in ("north", "south"):
        (folder / name / "inbox").mkdir(parents=True, exist_ok=True)
    file = folder / "clinics.toml"
    file.write_text(text)
    return file
