"""Answers in plain Python to the questions of docs/analysts.md about reports, results, answers, scores and tasks."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from statistics import fmean, median

from tests.support.published_rows import Answer, Row, Tables, groups, least, month, percent, percentile, right, timed

# --- Reports --------------------------------------------------------------------------------------


def _months(t: Tables) -> Answer:
    counts = Counter(month(row["effective_at"]).date() for row in right(t) if row["effective_at"])
    before = {day: counts.get(day.replace(year=day.year - 1)) for day in counts}
    return [(day, n, None if before[day] is None else n - (before[day] or 0)) for day, n in counts.items()]


def _codes(t: Tables) -> Answer:
    dated = [row for row in right(t) if row["effective_at"]]
    found = groups(dated, lambda row: month(row["effective_at"]), "code")
    return [(at, code, least(rows, "code_display"), len(rows)) for (at, code), rows in found.items()]


def _longest(t: Tables) -> Answer:
    lines = [
        (*key, least(rows, "code_display"), len(rows), *(percentile(_hours(rows), share) for share in (0.5, 0.9)))
        for key, rows in groups(timed(t), "category_code", "code").items()
        if len(rows) >= 3
    ]
    return sorted(lines, key=lambda line: (-line[-1], line[0], line[1]))[:10]


def _hours(rows: Iterable[Row]) -> list[float]:
    return [row["turnaround_hours"] for row in rows]


def _nine_of_ten(t: Tables) -> Answer:
    found = groups(timed(t), "category_code")
    return [(*key, len(rows), percentile((r["turnaround_hours"] for r in rows), 0.9)) for key, rows in found.items()]


def _within_a_day(t: Tables) -> Answer:
    found = groups(timed(t), "category_code")
    return [
        (*key, len(rows), percent(sum(r["turnaround_hours"] <= 24 for r in rows), len(rows)))
        for key, rows in found.items()
    ]


def _long_ago(t: Tables) -> Answer:
    last: dict[str, datetime] = {}
    for row in right(t):
        if row["category_code"] == "LAB" and row["effective_at"]:
            last[row["patient_id"]] = max(last.get(row["patient_id"], row["effective_at"]), row["effective_at"])
    newest = max(row["effective_at"] for row in right(t) if row["effective_at"])
    year = newest.replace(year=newest.year - 1)
    return [(patient, at) for patient, at in last.items() if at < year]


def _of_code(t: Tables) -> Answer:
    ids = {
        r["report_id"]
        for r in t["diagnostic_report_code"]
        if (r["system"], r["code"]) == ("http://loinc.org", "58410-2")
    }
    columns = ("report_id", "status", "patient_id", "effective_at")
    return [tuple(row[c] for c in columns) for row in t["diagnostic_report"] if row["report_id"] in ids]


def _changed(t: Tables) -> Answer:
    since = max(row["published_at"] for row in t["publication"]).date() - timedelta(days=30)
    columns = ("day", "category_code", "corrected", "entered_in_error", "gone")
    found = (row for row in t["report_change_by_day"] if row["day"] >= since)
    return [tuple(row[c] for c in columns) for row in found if row["corrected"] or row["gone"]]


def _performers(t: Tables) -> Answer:
    reports = {row["report_id"]: row["patient_id"] for row in right(t)}
    names = {row["practitioner_id"]: row["name"] for row in t["practitioner"]}
    pairs = {
        (r["practitioner_id"], r["report_id"]) for r in t["diagnostic_report_performer"] if r["report_id"] in reports
    }
    found: dict[str, list[str]] = defaultdict(list)
    for who, report in pairs:
        found[who].append(reports[report])
    ranked = sorted(found, key=lambda who: (-len(found[who]), who))[:10]
    return [(names[who] or who, len(found[who]), len(set(found[who]))) for who in ranked]


# --- Results --------------------------------------------------------------------------------------


def _standing(t: Tables) -> list[Row]:
    """Return the results that no report names, and those of reports that are not entered in error."""
    stands = {row["report_id"] for row in right(t)}
    named: dict[str, list[str]] = defaultdict(list)
    for row in t["diagnostic_report_result"]:
        named[row["observation_id"]].append(row["report_id"])
    return [r for r in t["observation"] if stands.intersection(of := named[r["observation_id"]]) or not of]


def _series(t: Tables, code: str) -> dict[str, list[Row]]:
    found = [r for r in _standing(t) if r["code"] == code and r["effective_at"]]
    found.sort(key=lambda row: (row["effective_at"], row["observation_id"]))
    return {patient: rows for (patient,), rows in groups(found, "patient_id").items()}


def _hba1c(t: Tables) -> Answer:
    rows = _series(t, "4548-4").get("p100", [])
    before = [None, *rows][: len(rows)]
    return [
        (
            *(row["effective_at"], row["value"], row["unit"]),
            old and row["value"] - old["value"],
            old and (row["effective_at"] - old["effective_at"]).days,
            row["value"] < 4.0 or row["value"] > 5.6,
        )
        for row, old in zip(rows, before, strict=True)
    ]


def _abnormal(t: Tables) -> Answer:
    lines = []
    for (code, unit), rows in groups(_standing(t), "code", "unit").items():
        verdicts = [verdict for row in rows if (verdict := _is_abnormal(row)) is not None]
        if verdicts:
            about = (code, least(rows, "code_display"), unit, len(rows), len(verdicts), sum(verdicts))
            lines.append((*about, percent(sum(verdicts), len(verdicts))))
    return lines


def _is_abnormal(row: Row) -> bool | None:
    """True if the value is outside its range; without a range, if the interpretation says so."""
    low, high, said = row["range_low"], row["range_high"], row["interpretation"]
    if row["value"] is None or (low is None and high is None):
        return None if said is None else said != "N"
    return (low is not None and row["value"] < low) or (high is not None and row["value"] > high)


def _above_nine(t: Tables) -> Answer:
    last = (rows[-1] for rows in _series(t, "4548-4").values())
    return [(row["patient_id"], row["value"], row["effective_at"]) for row in last if row["value"] > 9]


def _not_read(t: Tables) -> Answer:
    there = {row["observation_id"]: row["patient_id"] for row in t["observation"]}
    whose = {row["report_id"]: row["patient_id"] for row in t["diagnostic_report"]}
    wrong = [
        ("other patient" if r["observation_id"] in there else "not read", r["report_id"])
        for r in t["diagnostic_report_result"]
        if there.get(r["observation_id"]) != whose[r["report_id"]]
    ]
    return [
        (s, n, len({report for each, report in wrong if each == s})) for s, n in Counter(s for s, _ in wrong).items()
    ]


# --- Answers and scores ---------------------------------------------------------------------------

POINTS = {"LA6568-5": 0, "LA6569-3": 1, "LA6570-1": 2, "LA6571-9": 3}
BANDS = ((20, "severe"), (15, "moderately severe"), (10, "moderate"), (5, "mild"), (0, "minimal"))


def _phq9(t: Tables) -> list[tuple[str, datetime, str, int]]:
    """Return patient, time, response and sum of points of each complete PHQ-9, in order."""
    answers = [row for row in t["answer"] if row["questionnaire"] == "PHQ9" and row["option_code"] in POINTS]
    found = groups(answers, "patient_id", "authored_at", "response_id")
    nine = ((*key, sum(POINTS[r["option_code"]] for r in rows[:9])) for key, rows in found.items() if len(rows) >= 9)
    return sorted(nine, key=lambda each: each[:3])


def _band(value: float) -> str:
    return next(label for least, label in BANDS if value >= least)


def _with_before(t: Tables) -> list[tuple[str, datetime, int, int | None]]:
    before: dict[str, int] = {}
    found = []
    for patient, at, _, value in _phq9(t):
        found.append((patient, at, value, before.get(patient)))
        before[patient] = value
    return found


def _over_time(t: Tables) -> Answer:
    mine = [row[1:] for row in _with_before(t) if row[0] == "p115"]
    return [(at, value, _band(value), None if old is None else value - old) for at, value, old in mine]


def _means(t: Tables) -> Answer:
    found: dict[datetime, list[int]] = defaultdict(list)
    for _, at, _, value in _phq9(t):
        found[month(at)].append(value)
    return [("PHQ-9", at, len(values), round(fmean(values) + 1e-9, 2)) for at, values in found.items()]


def _option_share(t: Tables) -> Answer:
    some = [r for r in t["answer"] if r["questionnaire"] == "PHQ9" and r["question_code"] == "44250-9"]
    every = Counter(month(row["authored_at"]) for row in some)
    found = groups(some, lambda row: month(row["authored_at"]), "option_display")
    return [(at, option, len(rows), percent(len(rows), every[at])) for (at, option), rows in found.items()]


def _in_words(t: Tables) -> Answer:
    texts = t.by("question", "questionnaire_id", "link_id")
    found = groups(
        [row for row in t["answer"] if row["option_code"]],
        *("questionnaire_id", "questionnaire", "link_id", "option_system", "option_code", "option_display"),
    )
    return [(key[1], texts[key[0], key[2]]["text"], key[5], len(rows)) for key, rows in found.items()]


def _complete(t: Tables) -> Answer:
    responses = [row for row in t["questionnaire_response"] if row["questionnaire_id"] == "q-phq9"]
    whole = {response for _, _, response, _ in _phq9(t)}
    found = groups(responses, lambda row: month(row["authored_at"]))
    return [
        ("PHQ-9", *k, len(rows), percent(sum(r["resource_id"] in whole for r in rows), len(rows)))
        for k, rows in found.items()
    ]


def _unanswered(t: Tables) -> Answer:
    responses = Counter(row["questionnaire_id"] for row in t["questionnaire_response"])
    answered = {
        key: {r["response_id"] for r in rows}
        for key, rows in groups(t["answer"], "questionnaire_id", "link_id").items()
    }
    names = t.by("questionnaire", "questionnaire_id")
    asked = [
        (row["questionnaire_id"], row["link_id"], row)
        for row in t["question"]
        if row["questionnaire_id"] in responses and row["type"] not in ("group", "display")
    ]
    lines = [
        (
            *(names[q]["name"], row["text"], row["is_conditional"], responses[q]),
            *(responses[q] - len(answered.get((q, link), ())), link),
        )
        for q, link, row in asked
    ]
    return [line[:5] for line in sorted(lines, key=lambda line: (-line[4], line[0], line[5]))[:10]]


def _rose(t: Tables) -> Answer:
    return [(p, "PHQ-9", at, old, new) for p, at, new, old in _with_before(t) if old is not None and new - old >= 5]


def _last_bands(t: Tables) -> Answer:
    last = {patient: value for patient, _, _, value in _phq9(t)}
    return [("PHQ-9", band, n) for band, n in Counter(map(_band, last.values())).items()]


# --- Tasks ----------------------------------------------------------------------------------------


def _open(t: Tables) -> list[Row]:
    return [row for row in t["task"] if row["status"] == "requested"]


def now_of(t: Tables) -> datetime:
    now: datetime = max(row["published_at"] for row in t["publication"])
    return now


def _age(t: Tables, row: Row) -> str:
    days = (now_of(t) - row["authored_at"]).days
    words = ((90, "90 days or more"), (30, "30 to 89 days"), (7, "7 to 29 days"))
    return next((text for least, text in words if days >= least), "under 7 days")


def _owners(t: Tables) -> Answer:
    names = t.by("practitioner", "practitioner_id")
    found = groups(_open(t), "owner_id", lambda row: _age(t, row))
    return [(names[who]["name"] or who if who else "nobody", age, len(rows)) for (who, age), rows in found.items()]


def _overdue(t: Tables) -> Answer:
    names, now = t.by("care_group", "group_id"), now_of(t)
    found = groups(_open(t), "group_id")
    late = {key: sum(bool(r["due_at"] and r["due_at"] < now) for r in rows) for key, rows in found.items()}
    return [(names[g]["name"] or g if g else "no group", len(rows), late[g,]) for (g,), rows in found.items()]


def _days(t: Tables) -> Answer:
    own = (row for row in t["task"] if row["authored_is_own"])
    done = [r for r in own if r["completed_at"] and r["completed_at"] >= r["authored_at"]]
    found = groups(done, "owner_id")
    days = {k: [(r["completed_at"].date() - r["authored_at"].date()).days for r in rows] for k, rows in found.items()}
    return [(*key, len(rows), median(days[key])) for key, rows in found.items()]


def _labels(t: Tables) -> Answer:
    pairs = [(label, row["status"] == "requested") for row in t["task"] for label in row["labels"] or ()]
    opened = Counter(label for label, is_open in pairs if is_open)
    return [(label, n, opened[label]) for label, n in Counter(label for label, _ in pairs).items()]


ABOUT_CHARTS = (
    *(_months, _codes, _longest, _nine_of_ten, _within_a_day, _long_ago, _of_code, _changed, _performers),
    *(_hba1c, _abnormal, _above_nine, _not_read),
    *(_over_time, _means, _option_share, _in_words, _complete, _unanswered, _rose, _last_bands),
    *(_owners, _overdue, _days, _labels),
)
"""In the order of the questions."""
