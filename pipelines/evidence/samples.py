"""A random sample of the records at the target, to be compared with the chart by hand. A seed repeats it."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import duckdb
import orjson

from fhir_service.interface.site import Site
from pipelines.evidence.files import rows_of
from pipelines.home.counted import counted
from pipelines.home.spill import is_whole
from pipelines.ledger.manifests import runs_in
from pipelines.session.needed_reads import reading
from pipelines.session.questionnaires import Snapshot
from pipelines.session.session import Session

PERMALINK, RESPONSE = "-permalink", "QuestionnaireResponse"
LONGEST_QUESTION = 60
Questions = Mapping[str, Mapping[str, Any]]
_PAGES = {"PaymentNotice": "patients/{patient}", "Task": "tasks/{id}", "QuestionnaireResponse": "responses/{id}"}
"""The page in the bundled service's chart that shows a resource."""
_CHOSEN = """
    SELECT feed, file_name, batch_id, run, line, key, kind, resource_id, patient_id, day::TEXT AS day, amount_cents,
        count(*) OVER (PARTITION BY feed) AS of
    FROM record WHERE fate = 'there'
    QUALIFY row_number() OVER (PARTITION BY feed ORDER BY md5(concat_ws('|', $seed, source, kind, key))) <= $size
    ORDER BY feed, md5(concat_ws('|', $seed, source, kind, key))"""


def sample(db: duckdb.DuckDBPyConnection, size: int, seed: str) -> list[dict[str, Any]]:
    """Return `size` records of each feed, chosen by hashes of the seed and their keys. of: the number of all."""
    return rows_of(db.execute(_CHOSEN, {"seed": seed, "size": size}))


def add_both_sides(session: Session, chosen: list[dict[str, Any]], chart: str) -> None:
    """Add to each record the content in its file, the target's present content, and the link to the chart.

    chart: the address under which people open the target. Raises `TargetUnusable`.
    """
    with duckdb.connect() as db:
        said = [_sent(db, session, each) for each in chosen]
    asks = any(each["kind"] == RESPONSE for each in chosen)
    questions = _questions(session.snapshot, session.connection.site) if asks else {}
    for each, sent in zip(chosen, said, strict=True):
        kind, resource_id = str(each["kind"]), str(each["resource_id"])
        with reading(f"{kind}/{resource_id}"):
            there = session.connection.client.read(kind, resource_id)
        each["export_says"] = _says(kind, sent, questions) if sent else "see the line"
        each["target_says"] = _says(kind, there, questions) if there is not None else None
        each["link"] = _link(session, each, there or {}, chart)


def _sent(db: duckdb.DuckDBPyConnection, session: Session, each: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the record's row; empty for a row that was set aside and is at the target nevertheless.

    Run numbers may repeat after a lost ledger: the newest run with the row counts.
    """
    query = "SELECT body FROM read_parquet($path) WHERE line = $line AND key = $key"
    for number, folder, _ in reversed(runs_in(session.batches.folder(each["batch_id"]), session.target)):
        path = folder / "accepted.parquet"
        if number == each["run"] and is_whole(path):
            given = {"path": str(path), "line": each["line"], "key": each["key"]}
            if found := db.execute(query, given).fetchone():
                return dict(orjson.loads(found[0]))
    return {}


def _questions(snapshot: Snapshot, site: Site) -> Questions:
    """Return the items of each questionnaire by linkId, under each text by which a response names the questionnaire.

    A questionnaire without a canonical URL is also listed under the end of an address, since a target that moved had
    another address before.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for name, questionnaire in snapshot.questionnaires.items():
        end = f"Questionnaire/{name}"
        also = () if name in snapshot.canonicals else (f"/{end}",)
        found |= dict.fromkeys((end, site.url("Questionnaire", name), *also), questionnaire.questions)
    return found | {url: snapshot.questionnaires[name].questions for name, url in snapshot.canonicals.items()}


def _items_named(named: str, questions: Questions) -> Mapping[str, Any]:
    """Return the items of the questionnaire that a response names, with or without a version; {} if unknown."""
    url = named.partition("|")[0]
    end = f"/{'/'.join(url.rsplit('/', 2)[1:])}"
    return next((questions[text] for text in (named, url, end) if text in questions), {})


def _says(kind: str, body: Mapping[str, Any], questions: Questions) -> str:
    """Return the codes, dates and numbers of a body, with the words of its questionnaire: no name and no free text."""
    if kind == "PaymentNotice":
        return f"amount {_amount(body)}"
    if kind == "Task":
        due = (body.get("restriction") or {}).get("period", {}).get("end")
        return ", ".join(filter(None, [f"status {body.get('status')}", due and f"due {str(due)[:10]}"]))
    answers = _answers(body, _items_named(str(body.get("questionnaire")), questions))
    return f"{counted(len(answers), 'answer')}: {', '.join(answers)}" if answers else "no answers"


def _amount(body: Mapping[str, Any]) -> str:
    value = (body.get("amount") or {}).get("value")
    return f"{value:,.2f}" if isinstance(value, int | float) else str(value)


def _answers(body: Mapping[str, Any], items: Mapping[str, Any]) -> list[str]:
    """Return question and option or number of each answer, in the order of linkIds; for a text only `(text)`."""
    found: list[tuple[str, str]] = []
    waiting = list(body.get("item") or [])
    while waiting:
        item = waiting.pop()
        waiting += item.get("item") or []
        for answer in item.get("answer") or []:
            waiting += answer.get("item") or []
            link_id = str(item.get("linkId"))
            found.append((link_id, _answer(answer, items.get(link_id))))
    return [f"{_asked(link_id, items.get(link_id))} = {value}" for link_id, value in sorted(found)]


def _asked(link_id: str, item: Any) -> str:
    """Return the words of a question in its questionnaire; the linkId if it has none."""
    text = item.text if item is not None and item.text else link_id
    return text if len(text) <= LONGEST_QUESTION else f"{text[: LONGEST_QUESTION - 1]}…"


def _answer(answer: Mapping[str, Any], item: Any) -> str:
    if "valueCoding" not in answer:
        return str(answer["valueDecimal"]) if "valueDecimal" in answer else "(text)"
    coding = answer["valueCoding"]
    named = (coding.get("system"), coding.get("code"))
    options = item.options if item is not None else ()
    words = next((each.display for each in options if (each.system, each.code) == named), None)
    return f"{words} ({coding.get('code')})" if words else str(coding.get("code"))


def _link(session: Session, each: Mapping[str, Any], there: Mapping[str, Any], chart: str) -> str:
    """Return the target's own permalink of a resource, else its page in the chart, else its address."""
    base = session.connection.base_url
    extensions = there.get("extension") or []
    for extension in extensions:
        if str(extension.get("url")).endswith(PERMALINK) and (value := extension.get("valueString")):
            return chart + value.removeprefix(base) if value.startswith(base) else str(value)
    if session.connection.ours and not urlsplit(base).path.strip("/"):
        page = _PAGES[each["kind"]].format(patient=each["patient_id"], id=each["resource_id"])
        return f"{chart}/chart/{page}"
    return f"{chart}/{each['kind']}/{each['resource_id']}"
