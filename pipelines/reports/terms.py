"""The codes and units that a pseudonymous publication shows. A target may write anything where a code belongs.

A term is shown if it has the form of a code in a known system, is a word of FHIR or a unit, is in a questionnaire of
the target, or is shared by the records of enough patients. Any other term is left out, as text is.
"""

import re
from collections.abc import Mapping, Sequence

import duckdb

from pipelines.reports.tables import TERM, ReportTable

_UCUM_ATOMS = """% 10* 10^ m s g L l mol eq osm Pa Hz J W V K C Cel deg min h d wk mo a bar cal kat U u [IU] [iU]
    [arb'U] [degF] [pH] [ppth] [ppm] [ppb] [lb_av] [oz_av] [in_i] [ft_i] [CFU] [HPF] [LPF] [drp] mm[Hg] m[Hg] mm[H2O]
    cm[H2O] N Bq Sv Gy B dB [APL'U] [GPL'U] [MPL'U]""".split()
_PREFIXES = "k h da d c m u n p f M G T".split()
_SAID = """mmHg bpm beats/min breaths/min IU/L IU/mL mIU/L mIU/mL uIU/mL U/L K/uL M/uL cells/uL x10E3/uL x10E6/uL /HPF
    /LPF mEq/L mmol/mol ratio percent °C °F lb lbs in ft kg/m² mL/min/1.73 mL/min/1.73m2""".split()
"""Common spellings of units for which UCUM has another code."""
WORDS = """
    registered preliminary final amended corrected cancelled entered-in-error unknown partial appended draft requested
    received accepted rejected ready in-progress on-hold failed completed stopped active paid cleared male female other
    laboratory vital-signs imaging exam survey procedure therapy social-history activity normal recommended treatment
    therapeutic pre post endocrine follicular midcycle luteal asked-unknown temp-unknown not-asked asked-declined masked
    not-applicable unsupported as-text error not-a-number negative-infinity positive-infinity not-performed
    not-permitted < <= >= > ad true false yes no USD EUR GBP CHF CAD AUD
    A AA B D E EX EXP H HH HU HX I IE IND IN L LL LU LX N ND NEG NR NS POS R RR S SDD SYN-R SYN-S U W WR
    AU BG BLB CG CH CP CT CTH CUS EC EN GE HM ICU IMM LAB MB MCB MYC NMR NMS NRS OSL OT OTH OUS PAR PAT PF PHR PHY PT
    RAD RC RT RUS RX SP SR TX URN VR VUS XRC
    text/plain text/html text/xml application/pdf application/dicom application/xml application/rtf image/jpeg image/png
    image/tiff""".split()
"""Codes of FHIR's value sets that tables show, flags of results, sections of laboratories, and media types."""
CODES = {
    "http://loinc.org": r"(L[APG])?[0-9]{1,7}-[0-9]",
    "http://snomed.info/sct": r"[0-9]{6,18}",
    "http://www.nlm.nih.gov/research/umls/rxnorm": r"[0-9]{1,7}",
    "http://hl7.org/fhir/sid/cvx": r"[0-9]{1,3}",
    "http://hl7.org/fhir/sid/icd-10": r"[A-Z][0-9][0-9A-Z](\.[0-9A-Z]{1,4})?",
    "http://hl7.org/fhir/sid/icd-10-cm": r"[A-Z][0-9][0-9A-Z](\.[0-9A-Z]{1,4})?",
    "http://www.ama-assn.org/go/cpt": r"[0-9]{4}[0-9A-Z]",
    "http://unitsofmeasure.org": "",
}
"""The form of the codes of each system. Units have the form `UNIT`."""
SYSTEM = r"http://terminology\.hl7\.org/CodeSystem/(v2-[0-9]{4}|v3-[A-Za-z]{1,40}|[a-z-]{1,40})"


def _escaped(words: Sequence[str]) -> str:
    return "|".join(re.sub(r"[!-/:-@\[-`{-~]", r"\\\g<0>", word) for word in words)


_UNIT = rf"(({'|'.join(_PREFIXES)})?({_escaped(_UCUM_ATOMS)})(-?[0-9]{{1,2}})?|10{{0,9}})"
UNIT = rf"/?{_UNIT}([./]{_UNIT}){{0,5}}|{_escaped(_SAID)}"
"""The form of a unit: UCUM without annotations, which are free text, or a common spelling."""


def set_terms(db: duckdb.DuckDBPyConnection, tables: Sequence[ReportTable], smallest: int) -> None:
    """Note in the session the terms shown from the database `private`, and make the macros that hide others.

    smallest: the number of patients that must share a term.
    """
    db.execute("CREATE OR REPLACE TEMP TABLE _shown_term (code VARCHAR)")
    of_name = {table.name: table for table in tables}
    for name, codes in DICTIONARY.items():
        for code in codes if name in of_name else ():
            db.execute(f'INSERT INTO _shown_term SELECT DISTINCT "{code}" FROM private.main."{name}"')
    for table in tables:
        for column in table.columns:
            if column.kind == TERM and (rows := _with_patients(table, of_name)):
                term = f'unnest("{column.name}")' if column.type.endswith("[]") else f'"{column.name}"'
                db.execute(
                    f"""INSERT INTO _shown_term SELECT term FROM (SELECT patient, {term} AS term FROM {rows})
                    GROUP BY term HAVING count(DISTINCT patient) >= {smallest}"""
                )
    db.execute(
        "CREATE OR REPLACE TEMP TABLE _shown_term AS SELECT DISTINCT code FROM _shown_term WHERE code IS NOT NULL"
    )
    db.execute("SET VARIABLE shown_terms = (SELECT coalesce(list(code), []) FROM _shown_term)")
    for macro in _macros():
        db.execute(macro)


def _with_patients(table: ReportTable, of_name: Mapping[str, ReportTable]) -> str:
    """Return the SQL of the table's rows with a column `patient`, from the table or from a table that it refers to.

    Empty if there is no such column.
    """
    there = f'private.main."{table.name}"'
    if own := table.patient:
        return f'(SELECT *, "{own}" AS patient FROM {there})'
    for column, other in table.references:
        if other in of_name and (of := of_name[other].patient):
            people = f'(SELECT "{column}", "{of}" AS patient FROM private.main."{other}")'
            return f'({there} JOIN {people} USING ("{column}"))'
    return ""


DICTIONARY = {
    "questionnaire": ("questionnaire_id", "code_system", "code"),
    "question": ("link_id", "code_system", "code"),
    "answer_option": ("system", "code"),
}
"""The columns of codes in the tables of the target's questionnaires, which hold no patient data."""


def _macros() -> tuple[str, str]:
    """Return the macros that return a term, or the terms of a list, only if they are shown."""
    forms = " ".join(
        f"WHEN '{system}' THEN regexp_full_match(term, '{form}')" for system, form in CODES.items() if form
    )
    known = f"{UNIT}|{SYSTEM}|{_escaped([*WORDS, *CODES])}".replace("'", "''")
    return (
        f"""CREATE OR REPLACE TEMP MACRO shown_of(system, term) AS CASE
            WHEN regexp_full_match(term, '{known}') OR coalesce(CASE system {forms} END, false)
                OR term IN (SELECT code FROM _shown_term)
            THEN term END""",
        # In DuckDB, a lambda cannot contain a subquery.
        f"""CREATE OR REPLACE TEMP MACRO shown_among(terms) AS list_filter(terms, lambda term:
            regexp_full_match(term, '{known}') OR list_contains(getvariable('shown_terms'), term))""",
    )
