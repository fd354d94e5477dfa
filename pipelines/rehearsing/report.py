"""The report of a rehearsal: every row's outcome, balances, outcomes that rest on decisions, and changes since before.

It holds only ids, keys, codes, lines and cents; no text of a record.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import orjson

from fhir_service.interface.site import Site
from fhir_service.paths import exists
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.terms.rulebook import rules
from pipelines.home import spill
from pipelines.home.batch import UnreadableFile
from pipelines.home.files import session, written_whole
from pipelines.rehearsing.refusals import basis, rests_on_decisions, rule_behind
from pipelines.runs.lines import dollars, first_of
from pipelines.runs.manifest import rules_version, software_version
from pipelines.runs.run import RunResult
from pipelines.runs.summary import Summary
from pipelines.session.questionnaires import Snapshot

SHOWN = 20
MONEY = "PaymentNotice"
ABOVE_THE_BALANCE = "PAY-CREATE-04"
FHIR_ID = re.compile(r"[A-Za-z0-9\-.]{1,64}")
WITHOUT_WORD = {"finished": "unchanged", "stopped": "not sent", "failed": "not sent"}
"""The state of an accepted row without a fact in the ledger, by the state of its file; else `planned`."""

ROWS = """
WITH event AS (SELECT * FROM read_parquet($events)),
by_line AS (
  SELECT line, arg_max(state, n) AS state, arg_max(reasons, n) AS reasons
  FROM event WHERE line IS NOT NULL GROUP BY line
),
by_key AS (
  SELECT key, arg_max(state, n) AS state, arg_max(http_status, n) AS http_status
  FROM event WHERE line IS NULL GROUP BY key
)
SELECT a.line, a.lines, a.key, coalesce(l.state, k.state, $otherwise) AS state, a.patient_id, a.amount_cents,
  NULL AS first_line, k.http_status, l.reasons, CASE WHEN l.state = 'refused' THEN a.body END AS body
FROM read_parquet($accepted) a LEFT JOIN by_line l ON l.line = a.line LEFT JOIN by_key k ON k.key = a.key
UNION ALL
SELECT line, lines, key, 'skipped', patient_id, amount_cents, first_line, NULL, NULL, NULL FROM read_parquet($skipped)
UNION ALL
SELECT r.line, r.lines, r.key, CASE l.state WHEN 'unchanged' THEN 'unchanged' ELSE 'rejected' END, r.patient_id,
  r.amount_cents, NULL, NULL, l.reasons, NULL
FROM read_parquet($rejects) r LEFT JOIN by_line l ON l.line = r.line
ORDER BY 1"""
ROW = "line lines key state patient cents first_line http_status reasons body".split()


@dataclass(frozen=True)
class RehearsedFile:
    """A rehearsed file. events: the ledger's facts on its rows. snapshot: the questionnaires, if rows were refused."""

    result: RunResult
    feed: Feed
    events: Path
    site: Site
    snapshot: Snapshot | None


@dataclass
class OutcomeSums:
    """The summed outcomes of a report's rows.

    * decided: the rules of decisions that rows break, with their numbers.
    * aside: the first rows that are set aside, and the first row of each rule.
    * set_aside: the number of all rows that are set aside.
    * patients: the patients with payments.
    * changed: the changes since the earlier report.
    """

    decided: Counter[str] = field(default_factory=Counter)
    aside: list[dict[str, Any]] = field(default_factory=list)
    set_aside: int = 0
    broken: set[str] = field(default_factory=set)
    changed: list[dict[str, Any]] = field(default_factory=list)
    patients: set[str] = field(default_factory=set)

    def take(self, row: dict[str, Any], feed: Feed, earlier: "EarlierOutcomes | None") -> None:
        names = {rule["rule"] for rule in row["rules"]}
        if row["rests_on_decision"]:
            self.decided.update(names)
        if names:
            self.set_aside += 1
            self.aside += [row] if self.set_aside <= SHOWN or names - self.broken else []
            self.broken |= names
        if row["patient"] and feed.resource == MONEY:
            self.patients.add(row["patient"])
        if earlier and (change := earlier.change(row, feed.source, feed.resource)):
            self.changed.append(change)


@dataclass
class RehearsalResult:
    """The result of a rehearsal, for the end of the command.

    balances: cents before and after, by patient. is_compared: True if there is an earlier report.
    """

    path: Path
    summary: Summary
    sums: OutcomeSums
    balances: Mapping[str, tuple[int, int]]
    is_compared: bool

    @property
    def exit_code(self) -> int:
        return self.summary.exit_code

    def lines(self) -> Iterable[str]:
        """Yield the rehearsal in words."""
        yield from self.summary.lines()
        yield from _aside_lines(self.sums.aside, self.sums.set_aside)
        if decided := self.sums.decided:
            rules = ", ".join(f"{rule} ({number:,})" for rule, number in sorted(decided.items()))
            yield f"rests on decisions of ours, which another target may not share: {rules}"
        if self.balances:
            before, after = (sum(pair[at] for pair in self.balances.values()) for at in (0, 1))
            word = "patient" if len(self.balances) == 1 else "patients"
            yield f"balances of {len(self.balances):,} {word}: $ {dollars(before)} before, {dollars(after)} after"
            owed = [{"patient": name, "pair": pair} for name, pair in self.balances.items() if len(set(pair)) > 1]
            yield from _indented(map(_balance, owed), len(owed), "patients")
        if self.is_compared:
            changed = self.sums.changed
            have = "row has" if len(changed) == 1 else "rows have"
            yield f"against the earlier rehearsal: {len(changed):,} {have} another outcome"
            yield from _indented(map(_changed, changed), len(changed), "changed")
        yield f"report: {self.path}"


def _indented(lines: Iterable[str], total: int, others: str) -> Iterator[str]:
    return (f"  {line}" for line in first_of(lines, SHOWN, total, f"{others}: see the report"))


def _aside_lines(rows: Sequence[Mapping[str, Any]], total: int) -> Iterator[str]:
    """Yield rows that would be set aside; after the first row of each rule, the rule's sentence."""
    said: set[str] = set()
    for row in rows:
        yield f"  {_aside(row)}"
        for rule_id in sorted(({rule["rule"] for rule in row["rules"]} & rules().keys()) - said):
            yield f"    {rule_id}: {rules()[rule_id].sentence}"
            said.add(rule_id)
    if total > len(rows):
        yield f"  and {total - len(rows):,} more set aside: see the report"
    if said:
        yield "what to do about a rule: chartferry rules ID"


def _aside(row: Mapping[str, Any]) -> str:
    owed = f", balance {dollars(row['balance_cents'])}" if "balance_cents" in row else ""
    return f"{row['file']} line {row['line']}, {row['key'] or 'no key'}: {_told(row)}{owed}"


def _told(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not there"
    marks = {rule["rule"]: ", a decision" if rule["basis"] == "decision" else "" for rule in row["rules"]}
    columns = {rule: ", ".join(_columns(row, rule)) for rule in marks}
    names = "; ".join(f"{rule}{columns[rule] and f' in {columns[rule]}'}{mark}" for rule, mark in marks.items())
    return f"{row['state']} ({names})" if names else str(row["state"])


def _columns(row: Mapping[str, Any], rule: str) -> Iterable[str]:
    """Return the columns of a row that a rule of the import is about."""
    found = (each.get("column") for each in row["rules"] if each["rule"] == rule and each["basis"] == "importer")
    return dict.fromkeys(column for column in found if column)


def _balance(one: Mapping[str, Any]) -> str:
    return f"{one['patient']}: {dollars(one['pair'][0])} to {dollars(one['pair'][1])}"


def _changed(one: Mapping[str, Any]) -> str:
    where = f"{one['file']} line {one['line']}, {one['key'] or 'no key'}"
    return f"{where}: {_told(one['before'])}, now {_told(one['now'])}"


# -- an earlier rehearsal

Name = tuple[str, str, str, int]
Told = tuple[str, tuple[tuple[str, str], ...]]


@dataclass
class EarlierOutcomes:
    """Outcomes of an earlier rehearsal, by source, resource, key (else file and line) and occurrence."""

    path: Path
    rows: dict[Name, tuple[Told, str, int]] = field(default_factory=dict)
    _seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the outcomes of a report. Raises `UnreadableFile` if the file is no report of a rehearsal."""
        try:
            report = orjson.loads(path.read_bytes())
            of = {each["file"]: (each["source"], each["resource"]) for each in report["files"]}
            found = cls(path)
            for row in report["rows"]:
                found.rows[found.name_of(row, *of[row["file"]])] = (_outcome(row), row["file"], row["line"])
        except (OSError, ValueError, KeyError, TypeError):
            raise UnreadableFile(f"{path}: this is no report of a rehearsal") from None
        found._seen.clear()
        return found

    def name_of(self, row: Mapping[str, Any], source: str, resource: str) -> Name:
        name = row["key"] if row["key"] is not None else f"\0{row['file']}\0{row['line']}"
        self._seen[source, resource, name] += 1
        return source, resource, name, self._seen[source, resource, name]

    def change(self, row: Mapping[str, Any], source: str, resource: str) -> dict[str, Any] | None:
        """Return the difference between the row's outcome and the earlier one; None if there is none."""
        before = self.rows.pop(self.name_of(row, source, resource), None)
        now = _outcome(row)
        if before and before[0] == now:
            return None
        where = {name: row[name] for name in ("file", "line", "key")}
        return {**where, "before": _as_json(before[0]) if before else None, "now": _as_json(now)}

    def gone(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the earlier rehearsal that did not occur again."""
        for (_, _, name, _), (told, file, line) in self.rows.items():
            key = None if name.startswith("\0") else name
            yield {"file": file, "line": line, "key": key, "before": _as_json(told), "now": None}


def _outcome(row: Mapping[str, Any]) -> Told:
    return row["state"], tuple(sorted({(rule["rule"], rule["basis"]) for rule in row["rules"]}))


def _as_json(told: Told) -> dict[str, Any]:
    return {"state": told[0], "rules": [{"rule": rule, "basis": kind} for rule, kind in told[1]]}


# -- the report


def accounts(store: Path, folder: Path) -> dict[str, int]:
    """Return the cents owed by each patient in a store that is ours alone: charges less payments."""
    with session(folder / ".spill", store) as connection:
        return dict(connection.execute("SELECT patient, charged - paid FROM account").fetchall())


def write_report(
    path: Path,
    folder: Path,
    summary: Summary,
    files: Sequence[RehearsedFile],
    owed: tuple[Mapping[str, int], Mapping[str, int]],
    earlier: EarlierOutcomes | None,
) -> RehearsalResult:
    """Write the report in one step, with the rows last, one a line. folder: the rehearsal's home."""
    found, rows = OutcomeSums(), folder / "rows.json"
    with rows.open("w", encoding="utf-8") as out:
        for file in files:
            for row in _rows(folder, file):
                if any(rule["rule"] == ABOVE_THE_BALANCE for rule in row["rules"]):
                    row["balance_cents"] = owed[1].get(row["patient"], 0)
                out.write(("," if out.tell() else "") + "\n" + json.dumps(row))
                found.take(row, file.feed, earlier)
    if earlier:
        found.changed.extend(earlier.gone())
    balances = {name: (owed[0].get(name, 0), owed[1].get(name, 0)) for name in sorted(found.patients)}
    head = {
        "rehearsed_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "software_version": software_version(),
        "rules_version": rules_version(),
        "target": summary.target,
        "target_id": summary.target_id,
        "files": [_file(file) for file in files],
        "totals": summary.as_json()["totals"],
        "unmatched": [str(left.path) for left in summary.unmatched],
        "error": summary.error,
        "exit_code": summary.exit_code,
        "decisions": dict(found.decided),
        "sentences": {rule_id: entry.sentence for rule_id, entry in rules().items() if rule_id in found.broken},
        "balances": [{"patient": p, "before_cents": b, "after_cents": a} for p, (b, a) in balances.items()],
        "against": str(earlier.path) if earlier else None,
        "changed": found.changed if earlier else None,
    }
    _write(path, head, rows)
    return RehearsalResult(path, summary, found, balances, earlier is not None)


def _file(file: RehearsedFile) -> dict[str, Any]:
    return {"source": file.feed.source, "resource": file.feed.resource, **asdict(file.result)}


def _write(path: Path, head: Mapping[str, Any], rows: Path) -> None:
    with written_whole(path) as part, part.open("w", encoding="utf-8") as out, rows.open(encoding="utf-8") as lines:
        out.write(json.dumps(head, indent=1)[:-2] + ',\n "rows": [')
        out.writelines(lines)
        out.write("\n ]\n}\n")


def _rows(folder: Path, file: RehearsedFile) -> Iterator[dict[str, Any]]:
    """Yield every record of a file by its first line, with its outcome and the reasons."""
    result = file.result
    run = folder / "batches" / str(result.batch_id) / f"run-{result.run}"
    if not exists(run / "skipped.parquet"):
        return
    names = ("accepted", "skipped", "rejects")
    with spill.sorter(run / ".spill") as database:
        found = database.execute(
            ROWS,
            {name: str(run / f"{name}.parquet") for name in names}
            | {"events": str(file.events), "otherwise": WITHOUT_WORD.get(result.state, "planned")},
        )
        while part := found.fetchmany(spill.BATCH):
            for values in part:
                yield _row(file, dict(zip(ROW, values, strict=True)))


def _row(file: RehearsedFile, row: dict[str, Any]) -> dict[str, Any]:
    reasons, body = orjson.loads(row.pop("reasons") or "[]"), row.pop("body")
    rules = [_rule(file, body, *reason[:4]) for reason in reasons]
    if row["patient"] and not FHIR_ID.fullmatch(row["patient"]):
        row["patient"] = None  # the column holds something else than an id
    decision = rests_on_decisions(rule["basis"] for rule in rules)
    return {"file": file.result.file, **row, "rules": rules, "rests_on_decision": decision}


def _rule(
    file: RehearsedFile, body: str | None, rule_id: str, expression: str | None, column: str | None, said: str
) -> dict[str, Any]:
    """Return a reason in codes: its rule, found also for a refusal, and the rule's basis."""
    resource, found = file.feed.resource, {"rule": rule_id}
    if body is not None:
        problem = rule_behind(resource, body, file.site, file.snapshot or Snapshot(), expression, said)
        found = {"rule": problem.rule if problem else rule_id, "code": rule_id}
    return {**found, "basis": basis(found["rule"]), "expression": expression, "column": column}
