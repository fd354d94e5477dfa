"""An evidence as it is written: its JSON and its page, which is signed."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.evidence.page import page_of
from pipelines.evidence.totals import FATES
from pipelines.home.counted import counted
from pipelines.home.files import write_whole
from pipelines.runs.lines import dollars

FOLDER = "evidence"


@dataclass(frozen=True)
class Evidence:
    """An evidence that was written: its content, and where its page and its JSON are."""

    content: dict[str, Any]
    page: Path
    document: Path

    @property
    def exit_code(self) -> int:
        return int(self.content["exit_code"])

    def as_json(self) -> dict[str, Any]:
        return {**self.content, "page": str(self.page), "document": str(self.document)}

    def lines(self) -> Iterator[str]:
        for feed in self.content["feeds"]:
            yield f"{feed['feed']}: {_sides(feed)}: {'they agree' if feed['agrees'] else 'THEY DO NOT AGREE'}"
            for fate, apart in feed["apart"].items():
                yield f"{feed['feed']}: {counted(apart['records'], 'record')} {fate}: {FATES[fate]}"
        if not self.content["feeds"]:
            yield "no records of these batches are here"
        for without in self.content["without_rows"]:
            purged = counted(without["ledger_records"], "record of a purged file is", "records of purged files are")
            yield f"{without['feed']}: {purged} compared with the ledger alone"
        for name in self.content["damaged"]:
            yield f"{name}: the file in its batch is not the one that came"
        for name in self.content["failed"]:
            yield f"{name}: its file could not be read, and no record of it is counted (chartferry status {name})"
        for name in self.content["failed_later"]:
            yield f"{name}: its last run failed; the records that an earlier run read are counted"
        for name in self.content["missing"]:
            yield f"{name}: its file is not here any more, and no purge of it is on record"
        yield f"verify: {self.content['verify']['sentence']}"
        sample = self.content["sample"]
        yield f"sample: {counted(len(sample['records']), 'record')}, seed {sample['seed']}"
        yield f"to sign: {self.page}"
        yield f"as JSON: {self.document}"


def _sides(feed: dict[str, Any]) -> str:
    sides = (f"{name} {_side(feed[name])}" for name in ("export", "ledger", "target"))
    return ", ".join(sides)


def _side(side: dict[str, int]) -> str:
    return counted(side["records"], "record") + (f" ({dollars(side['cents'])})" if side["cents"] else "")


def write_evidence(home: Path, content: dict[str, Any]) -> Evidence:
    """Write the JSON, and the page, which names its hash. Nobody writes over either."""
    folder = home / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    name = content["made_at"].replace(":", "")
    document = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
    page = page_of(content, document).encode()
    for suffix, written in ((".json", document), (".html", page)):
        with suppress(FileNotFoundError):
            (folder / f"evidence-{name}{suffix}").unlink()
        write_whole(folder / f"evidence-{name}{suffix}", written, 0o400)
    return Evidence(content, folder / f"evidence-{name}.html", folder / f"evidence-{name}.json")
