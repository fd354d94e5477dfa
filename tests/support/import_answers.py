"""Answers in plain Python to the questions of docs/analysts.md about money, imports, and all of it together."""

from collections import Counter, defaultdict
from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any

from tests.support.chart_answers import now_of
from tests.support.published_rows import Answer, Tables, created, first, groups, month, percent, right, total

# --- Money ----------------------------------------------------------------------------------------


def _paid(t: Tables) -> Answer:
    found = groups(created(t), "patient_id", lambda row: first(row["paid_on"]))
    return [(*key, len(rows), total(rows)) for key, rows in found.items()]


def _by_reason(t: Tables) -> Answer:
    sentences = {row["rule_id"]: row["sentence"] for row in t["rule"]}
    refused = {row["reject_id"]: row for row in t["payment"] if row["fate"] == "refused"}
    broken: dict[str, dict[str, str]] = defaultdict(dict)
    for row in sorted(t["reject_reason"], key=lambda row: row["message"], reverse=True):
        if row["reject_id"] in refused:
            broken[row["rule_id"]][row["reject_id"]] = row["message"]
    return [
        (rule, sentences.get(rule), min(why.values()), len(why), total(refused[one] for one in why))
        for rule, why in broken.items()
    ]


def _fates(t: Tables) -> Answer:
    return [(*key, len(rows), total(rows)) for key, rows in groups(t["payment"], "fate").items()]


def _unbalanced(t: Tables) -> Answer:
    lines = []
    for (day, patient), rows in groups(t["payment"], "paid_on", "patient_id").items():
        parts = {fate: total(row for row in rows if row["fate"] == fate) for fate in ("created", "refused", "open")}
        if parts["refused"] or parts["open"]:
            lines.append((day, patient, total(rows), parts["created"], parts["refused"], parts["open"]))
    return lines


def _kinds(t: Tables) -> Answer:
    sums: dict[Any, Decimal] = defaultdict(Decimal)
    for row in created(t):
        sums[first(row["paid_on"]), row["kind"]] += row["amount"]
    kinds = ("copayment", "balance payment", None)
    months = {row["month"] for row in t["calendar_month"]} | {month for month, _ in sums}
    return [(month, *(sums[month, kind] for kind in kinds)) for month in months]


def _claims(t: Tables) -> Answer:
    """Allocate all payments: copayments to their claims, then the rest to the oldest claims."""
    paid: dict[Any, Decimal] = defaultdict(Decimal)
    left: dict[Any, Decimal] = defaultdict(Decimal)
    claims = t.by("claim_balance", "claim_id")
    for row in created(t):
        fits = claims[row["claim_id"]]["charged"] - paid[row["claim_id"]] if row["claim_id"] in claims else Decimal(0)
        paid[row["claim_id"]] += min(fits, row["amount"])
        left[row["patient_id"]] += row["amount"] - min(fits, row["amount"])
    lines = []
    for row in sorted(claims.values(), key=lambda row: (row["charged_on"], row["claim_id"])):
        part = min(row["charged"] - paid[row["claim_id"]], left[row["patient_id"]])
        left[row["patient_id"]] -= part
        covered = paid[row["claim_id"]] + part
        about = (row["claim_id"], row["patient_id"], row["charged_on"], row["charged"])
        lines += [(*about, covered, row["charged"] - covered)] if covered < row["charged"] else []
    return sorted(lines, key=lambda line: (-line[-1], line[0]))[:20]


# --- Imports --------------------------------------------------------------------------------------


def _share(t: Tables) -> Answer:
    aside = Counter(row["batch_id"] for row in t["reject"])
    return [
        (
            *(b["file_name"], b["state"], b["records"], n := aside[b["batch_id"]]),
            percent(n, b["records"]) if b["records"] else None,
        )
        for b in t["import_batch"]
    ]


def _gaps(t: Tables) -> Answer:
    had = {(row["feed"], row["received_at"].astimezone(UTC).date()) for row in t["import_batch"]}
    today = now_of(t).astimezone(UTC).date()
    days = [day for n in range(61) if (day := today - timedelta(days=n)).weekday() < 5]
    return [(feed, day) for feed in {feed for feed, _ in had} for day in days if (feed, day) not in had]


def _pace(t: Tables) -> Answer:
    return [
        (
            r["batch_id"],
            r["run"],
            r["records"],
            round(r["records"] / (r["finished_at"] - r["started_at"]).total_seconds() + 1e-9, 1),
        )
        for r in t["import_run"]
        if r["finished_at"] > r["started_at"]
    ]


def _later(t: Tables) -> Answer:
    columns = ("source_key", "resource_type", "resource_id", "state", "finished_at")
    return [tuple(row[c] for c in columns) for row in t["import_row"] if row["state"] in ("updated", "superseded")]


def _record(t: Tables) -> Answer:
    files = {row["batch_id"]: row["file_name"] for row in t["import_batch"]}
    return [
        (row["source_key"], row["state"], row["resource_type"], row["resource_id"], files[row["batch_id"]], row["line"])
        for row in t["import_row"]
        if row["source_key"] == KEY
    ]


KEY = "P02-0001"


def _aside(t: Tables) -> Answer:
    open_ = {row["reject_id"]: row for row in t["reject"] if row["state"] == "open"}
    files = {row["batch_id"]: row["file_name"] for row in t["import_batch"]}
    return [
        (files[r["batch_id"]], r["line"], why["rule_id"], why["expression"], why["message"], r["first_seen_at"])
        for why in t["reject_reason"]
        if (r := open_.get(why["reject_id"]))
    ]


def _settled(t: Tables) -> Answer:
    found = groups(t["reject"], lambda row: row["first_seen_at"].astimezone(UTC).date())
    return [(*key, len(rows), sum(r["state"] in ("closed", "discarded") for r in rows)) for key, rows in found.items()]


# --- Across ---------------------------------------------------------------------------------------


def _no_report(t: Tables) -> Answer:
    with_reports = {row["patient_id"] for row in right(t)}
    return [(patient,) for patient in {row["patient_id"] for row in created(t)} - with_reports]


def _all_three(t: Tables) -> Answer:
    months = [
        {(row["patient_id"], month(row["authored_at"]).date()) for row in t[name]}
        for name in ("questionnaire_response", "task")
    ]
    return sorted(months[0] & months[1] & {(row["patient_id"], first(row["paid_on"])) for row in created(t)})


ABOUT_IMPORTS = (
    *(_paid, _by_reason, _fates, _unbalanced, _kinds, _claims),
    *(_share, _gaps, _pace, _later, _record, _aside, _settled),
    *(_no_report, _all_three),
)
"""In the order of the questions."""
