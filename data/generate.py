"""Makes `data/samples`: the reference data of an invented practice, an inbox with dirt, and what must become of it.

Run as `python data/generate.py [FOLDER]`. Needs the standard library only, and always writes the same: chance has a
fixed seed and no clock is read. The expected counts follow from how each record was planted, not from the importer.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUTCOMES = {
    "created": "created",
    "unchanged": "`unchanged`: known already",
    "skipped": "`skipped`: counts once",
    "refused": "refused by the service",
    "parse": "rejected (`parse`)",
    "map": "rejected (`map`)",
    "rule": "rejected (`rule`)",
}


def main(folder: Path) -> None:
    sys.path.insert(0, str(ROOT))
    from data.making import answers, payments, people, questionnaires, reports, tasks
    from data.making.tools import by, ndjson, write

    patients, claims, encounters = people.patients(), people.claims(), people.encounters()
    visits = dict(by(encounters, "subject"))
    ids = [patient["id"] for patient in patients]
    found, observations = reports.reports(visits, ids)
    reference = {
        "claim": claims,
        "diagnostic_report": found,
        "encounter": encounters,
        "group": people.groups(),
        "observation": observations,
        "patient": patients,
        "practitioner": people.practitioners(),
        "questionnaire": questionnaires.questionnaires(),
    }
    inbox = [*answers.files(ids, visits), *payments.files(patients, claims), *tasks.files(patients)]
    for name, resources in reference.items():
        write(folder / "reference" / f"{name}.ndjson", ndjson(resources))
    for file in inbox:
        write(folder / "inbox" / file.name, file.text())
        if file.control:
            write(folder / "inbox" / f"{file.name}.control.json", file.control_totals())
    expected = {"reference": _reference(reference), "files": {file.name: file.expected() for file in inbox}}
    write(folder / "expected.json", json.dumps(expected, indent=2, ensure_ascii=False) + "\n")
    write(folder / "README.md", README.format(reference=_counts(expected["reference"]), dirt=_dirt(inbox)))
    print(_summary(expected["files"]))


REFUSED = {"Claim": 1, "DiagnosticReport": 1, "Questionnaire": 1}


def _reference(reference: dict[str, list[Any]]) -> dict[str, dict[str, int]]:
    counts = {resources[0]["resourceType"]: len(resources) for resources in reference.values()}
    return {name: {"records": count, "refused": REFUSED.get(name, 0)} for name, count in counts.items()}


def _counts(reference: dict[str, dict[str, int]]) -> str:
    return ", ".join(f"{counts['records']} {name}" for name, counts in reference.items())


def _dirt(inbox: list[Any]) -> str:
    """The rows of the README's table: what is planted where, how often, and what becomes of it."""
    rows = []
    for file in inbox:
        planted = Counter((record.why, record.fate) for record in file.records if record.why)
        rows += [f"| {why} | `{file.name}` | {count} | {OUTCOMES[fate]} |" for (why, fate), count in planted.items()]
    return "\n".join(rows)


def _summary(files: dict[str, Any]) -> str:
    """One line per file, as the importer must count."""
    lines = [f"{'file':26}{'records':>8}{'created':>8}{'rejected':>9}{'refused':>8}{'skipped':>8}{'unchanged':>10}"]
    for name, counts in files.items():
        numbers = counts["records"], counts["created"], sum(counts["rejected"].values())
        rest = counts["refused"], counts["skipped"], counts["unchanged"]
        lines.append("{:26}{:>8}{:>8}{:>9}{:>8}{:>8}{:>10}".format(name, *numbers, *rest))
    return "\n".join(lines)


README = """# Samples

An invented practice. Made by `python data/generate.py`, which also wrote this page: change the generator, not the
files. Nobody in here exists.

## Reference data

`reference/`: {reference}. Vendor `example`, customer `demo`.

Three records are refused when it is loaded, each with its reason: the questionnaire `q-draft` (a draft), the claim
`clm-0500` (in euros) and the report `rep-0601` (preliminary). `q-phq9` has the name of `q-phq9-2024` and retires it.
Six claims are cancelled and charge nothing. Some claims have no total: the sum of their items counts. Some reports
have no `issued`, some a date without a time, a few were issued before they were taken, a few are entered in error.

## Inbox

`inbox/` is what an import of a real practice looks like. Two files come with control totals (`*.control.json`) that
agree. What is wrong on purpose:

| What | Where | Records | What becomes of it |
|---|---|---|---|
{dirt}

Beside that: quotes, line breaks and commas inside cells, names in many scripts, a byte order mark, CRLF line ends and
a blank line (`payments-2026-02.csv.gz`), times with offsets and without, ids with and without their type, rows of a
response that do not stand together, and payments out of the order of their days.

`expected.json` says, file by file, how many records an import into an empty store and ledger must create, reject and
see refused, as planted.

LOINC codes and answers are used under the LOINC licence (https://loinc.org/license); LOINC is copyright of
Regenstrief Institute, Inc. The PHQ-9 was developed by Drs. Spitzer, Williams, Kroenke and colleagues with a grant
from Pfizer Inc.; no permission is needed to reproduce it.
"""

if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "data" / "samples")
