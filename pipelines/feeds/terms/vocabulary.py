"""The names that other systems' exports use for our columns, as words.

A name is compared without the words for numbers, ids and times, which the cells show. `Receipt No` becomes `receipt`,
`Posted at` becomes `posted`, and `id` becomes "".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

_NAMES: Mapping[str, tuple[str, ...]] = {
    "payment_id": (
        *("payment", "receipt", "beleg", "quittung", "zahlung", "transaction", "txn", "buchung", "transaktion"),
        *("transaktions", "tran", "voucher", "entry", "sale", "psp reference", "kunden referenz", "session", ""),
        *("reference", "ref"),
    ),
    "patient_id": (
        *("patient", "patienten", "mrn", "patient mrn", "medical record", "patient medical record", "chart"),
        *("kartei", "pid", "patient chart", "patient record", "client", "customer", "member", "person", "subject"),
        *("account", "acct", "kunden", "external reference", "custom data 1", "participant", "consumer", "resident"),
        *("contact", "associated contact", "shopper reference", "shopper"),
    ),
    "amount": (
        *("amount paid", "paid amount", "payment amount", "paid", "payment", "amount", "betrag", "zahlungsbetrag"),
        *("amount received", "received", "total collected", "collected", "gross", "gross sales", "total", "umsatz"),
        *("total amount", "amount total", "total paid", "total paid w payment method", "captured", "captured pc"),
        *("net", "net sales", "sum", "summe", "value", "amount value", "amount cents", "montant"),
    ),
    "paid_on": (
        *("paid", "payment", "posted", "posting", "post", "post to", "received", "receipt", "booked", "buchungs"),
        *("gebucht", "zahlung", "transaction", "buchung", "", "deposit", "check", "created", "from", "sale", "zahl"),
        *("creation",),
    ),
    "claim_id": ("claim", "invoice", "rechnung", "case", "fall", "rechnungs", "encounter claim"),
    "response_id": (
        *("response", "respondent", "record", "submission", "bogen", "survey", "entry", "result", "answer set"),
        *("session", "instance", "interview", "form", "token", ""),
    ),
    "questionnaire": (
        *("questionnaire", "instrument", "form", "form name", "survey", "survey name", "questionnaire name"),
        *("instrument name", "fragebogen", "screening", "assessment", "measure", "tool"),
    ),
    "authored": (
        *("authored", "submitted", "submission", "submit", "completed", "completion", "recorded", "taken"),
        *("answered", "survey", "ausgefüllt", "abgegeben", "finished", "phq", "gad", "end", "observation"),
        *("observed", "", "created", "entered"),
    ),
    "tasks.authored": (
        *("authored", "created", "creation", "creation log", "opened", "requested", "angelegt", "erstellt"),
        *("reported", "entered", "logged", "raised", "call", "", "create", "submitted", "d ouverture", "ouverture"),
    ),
    "author": ("author", "respondent", "answered", "completed", "informant"),
    "encounter_id": ("encounter", "visit", "besuch"),
    "note_id": ("note",),
    "question": (
        *("question", "question code", "item", "link", "frage", "item code", "field", "field name", "variable"),
        *("variable name", "concept", "concept name"),
    ),
    "answer_code": (
        *("answer code", "answer", "response", "option", "antwort", "response code", "choice", "answer value"),
        *("value", "value coded", "coded value"),
    ),
    "answer_text": ("answer text", "free text", "response text", "value text", "text value"),
    "answer_number": ("answer number", "answer value", "score", "value numeric", "numeric value"),
    "task_id": (
        *("task", "issue", "ticket", "card", "bug", "work item", "request", "todo", "item", "aufgabe", "case", ""),
        *("reference",),
    ),
    "description": (
        *("summary", "title", "subject", "short description", "betreff", "name", "content", "what", "todo"),
        *("aufgabe", "task", "description", "beschreibung", "text", "message", "details", "titre"),
    ),
    "status": ("status", "state", "list name", "list", "section column", "section", "stand", "done", "statut"),
    "requester_id": (
        *("requester", "requested", "reporter", "reported", "created", "creator", "author", "opened", "submitter"),
        *("angelegt", "erstellt", "ersteller", "from", "user", "submitted", "sender", "taken", "entered"),
        *("demandeur", "demandeur demandeur"),
    ),
    "owner_id": (
        *("owner", "assignee", "assigned to", "assigned", "assign", "responsible", "members", "member", "zuständig"),
        *("recipient", "assignee email", "bearbeiter", "to", "owned", "agent", "handler", "person", "people"),
        *("agent assigned", "attribué à technicien", "technicien"),
    ),
    "group_id": ("group", "assignment group", "team", "gruppe", "department"),
    "due": ("due", "deadline", "fällig", "until", "frist", "target", "finish by"),
    "labels": ("labels", "label", "tags", "tag", "keywords", "schlagworte"),
    "comment": ("comment", "comments", "body", "note", "notes", "remark", "remarks", "bemerkung", "notiz", "kommentar"),
    "comment_author_id": ("comment author", "comment", "commenter", "note author"),
    "comment_time": ("comment", "commented", "note"),
}
ID_WORDS = frozenset("id ids no nr num number nummer key identifier uuid guid code".split())
TIME_WORDS = frozenset("date datum day tag on at am time timestamp utc stamp dt gmt".split())
_DROPPED = ID_WORDS | TIME_WORDS | frozenset("by von the of a an in".split())
OWN_NOUNS: Mapping[str, frozenset[str]] = {
    "payments": frozenset(),
    "answers": frozenset("survey questionnaire".split()),
    "tasks": frozenset("task issue ticket card bug item work".split()),
}
"""Nouns that only name the record of a column: `Card Name` among the columns of cards is `name`."""
KIND_WORDS: Mapping[str, frozenset[str]] = {
    "payments": frozenset(
        "payment payments paid amount receipt betrag zahlung transaction gross deposit transaktion transaktions umsatz"
        " tender tip trinkgeld currency währung card".split()
    ),
    "answers": frozenset(
        "survey questionnaire question response respondent answer instrument phq gad bogen frage submission".split()
    ),
    "tasks": frozenset(
        "task issue ticket assignee assigned due reporter titre statut demandeur"
        " aufgabe betreff summary title subject responsible".split()
    ),
}
NEVER = frozenset(
    "name email mail phone address birth dob geburt update updated modified changed viewed closed resolved url".split()
)
"""Words that change the meaning of a column's name: `Patient Name` is no id, `Last Modified` no creation time."""
_GLUE = (
    "issue key type start end due submit record recorded claim charge patient customer from to place of service"
    " procedure proc code line note date time stamp id nr number buchungs valuta verwendungs kunden referenz"
    " patienten beleg zahl name tag check post name response duration auftrags konto comment count watch created ip"
    " address"
).split()


@lru_cache(maxsize=4096)
def words_of(label: str) -> tuple[str, ...]:
    """Return the words of a name: `patient`, `id` for `PatientID`, `patient_id`, `PATIENTID` and `patientid`."""
    parted = re.sub(r"(?<=[a-zäöü])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s\b)[a-z])", " ", label)
    parted = re.sub(r"(?<=\w)\s*#|^#$", " nr ", parted)
    found = (part for word in re.findall(r"[^\W\d_]+|\d+", parted.lower()) for part in _parts(word))
    return tuple(_SHORTENED.get(part, part) for part in found)


_SHORTENED = {
    **dict.fromkeys(("pmt", "pymt", "pay"), "payment"),
    "amt": "amount",
    "rcpt": "receipt",
    "trans": "transaction",
    "cust": "customer",
    "desc": "description",
    "pat": "patient",
    "obs": "observation",
}
"""Abbreviations in names of columns."""


def _parts(word: str) -> list[str]:
    """Return `from`, `date` for `fromdate`; a known word stays whole."""
    if word in _KNOWN or len(word) < 5:
        return [word]
    for at in range(2, len(word) - 1):
        if word[:at] in _SPLIT and word[at:] in _SPLIT:
            return [word[:at], word[at:]]
    return [word]


def rank(target: str, words: tuple[str, ...], kind: str) -> int | None:
    """Return the position of a name among the known names of a column of ours; None if it is not among them."""
    names = _names(target, kind)
    own = tuple(word for word in words if word not in OWN_NOUNS[kind])
    for said in (plain(words), plain(own), plain(map(_singular, own))):
        if said in names:
            return names.index(said)
    return None


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > _SHORT else word


_SHORT = 4


def plain(words: Iterable[str]) -> str:
    """Return a column's name without the words of ids and times, small words, and numbers."""
    return " ".join(word for word in words if word not in _DROPPED and not word.isdigit())


def hints(target: str, words: tuple[str, ...], kind: str) -> bool:
    """True if a name contains all words of a known name, among others."""
    if set(words) & NEVER:
        return False
    return any(name and set(name.split()) <= set(words) for name in _names(target, kind))


def is_survey_fact(words: Sequence[str]) -> bool:
    """True if a short name is that of a fact that a survey tool notes about a response, not a question's."""
    return len(words) <= _SHORT_NAME and not _FACTS.isdisjoint(words)


def is_survey_fact_alone(words: Sequence[str]) -> bool:
    """True if a name has only words of such facts: `Status`, but not `Smoking status`."""
    return not _FACTS.isdisjoint(words) and set(words) <= _FACTS | _BESIDE_FACTS


_SHORT_NAME = 4
_FACTS = frozenset(
    "ip ipaddr address duration progress finished status language network collector seed page lastpage channel event"
    " instance repeat total complete recipient latitude longitude user email name first last number count zone stage"
    " type display".split()
)
_BESIDE_FACTS = frozenset("in seconds of the external reference data".split())


def is_name(text: str) -> bool:
    """True if a text is like a name of a column: a known one, or words that end with a word for ids or times."""
    words = words_of(text)
    if len(words) > 1 and words[-1] in ID_WORDS | TIME_WORDS:
        return True
    return plain(words) in _EVERY if words else False


def _names(target: str, kind: str) -> tuple[str, ...]:
    return _NAMES.get(f"{kind}.{target}") or _NAMES.get(target, ())


_KNOWN = frozenset(word for names in _NAMES.values() for name in names for word in name.split()) | frozenset(
    "timestamp datestamp updated birthday".split()
)
_SPLIT = frozenset(_GLUE) | ID_WORDS | TIME_WORDS
_EVERY = frozenset(name for names in _NAMES.values() for name in names)
