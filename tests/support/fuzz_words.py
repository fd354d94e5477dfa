"""The values of random requests: records of the reference data, and values that spoil a body, a query or a head."""

# --- Records of the reference data -----------------------------------------------------------------

KNOWN = {
    "Patient": ["p1", "p2", "p3", "P.4-Upper", "p5", "p6", "p7"],
    "Practitioner": ["dr1", "dr2", "DR.3"],
    "Group": ["g1", "g2"],
    "Claim": ["c3"],
    "Questionnaire": ["q-intake", "q-old", "q-systems", "q-odd", "q-score"],
    "DiagnosticReport": ["r1", "r2", "r4", "r5", "R.8-Upper"],
}
ENCOUNTERS = [("p1", "e1", "n1"), ("p1", "e5", "n5"), ("p2", "e6", "n6")]
"""patient, encounter, note"""
RICH = "p2"
"""A patient who owes more than the tests pay; `c3` is a charge of this patient."""
CODES = [
    ("http://loinc.org", "44250-9"),
    ("http://loinc.org", "LP29684-5"),
    ("http://loinc.org", "55757-9"),
    ("http://terminology.hl7.org/CodeSystem/v2-0074", "LAB"),
    ("http://snomed.info/sct", "418799008"),
]
MOODS = [("LA6568-5", "Not at all"), ("LA6569-3", "Several days")]
SYMPTOMS = [("25064002", "Headache"), ("422587007", "Nausea"), ("84229001", "Fatigue")]

# --- Values that spoil ----------------------------------------------------------------------------------

WORDS = [
    "follow-up",
    "x",
    "Zoë",
    "漢字 ערב",
    "👩‍⚕️",
    "a,b",
    "a|b",
    "back\\slash",
    "100 %",
    "tab\tand\nline",
    "'; --",
    "<b>&",
]
ODD_TEXTS = ["", " ", "\x00", "\x07", "\x85", "\ud800", "﻿", "a" * 70_000, "%00", "../..", "{base_url}", "\x01", "null"]
ODD_TIMES = [
    "2024-02-30",
    "0000-01-01",
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00",
    "24:00",
    "2024",
    "now",
]
ODD_NUMBERS = [
    "1e400",
    "-1e400",
    "1E-999999999",
    "1e999999999999",
    "0.1e1",
    "-0",
    "9" * 400,
    "0.005",
    "1.0000",
    "NaN",
    "01",
]
ODD_HEADERS = [
    (b"content-type", b"text/plain"),
    (b"content-type", b""),
    (b"accept", b"\xff"),
    (b"accept", b"application/fhir+json; q=0.9, */*"),
    (b"prefer", b"handling=lenient"),
    (b"prefer", b",;=,"),
    (b"if-none-exist", b"identifier=urn:fuzz|a"),
    (b"if-none-exist", b"name=x"),
    (b"if-none-exist", b"identifier=urn:fuzz|a\\"),
    (b"if-unmodified-since", b"Sat, 01 Jan 2000 00:00:00 GMT"),
    (b"if-unmodified-since", b"Mon, 99 Foo 99999 99:99:99 GMT"),
    (b"if-match", b'W/"1"'),
    (b"if-match", b"\xe9,,"),
    (b"x-correlation-id", b"\xff" * 40),
    (b"authorization", b"Bearer nobody"),
    (b"authorization", b"Basic \xff"),
    (b"expect", b"something"),
    (b"range", b"bytes=0-1"),
    (b"host", b"elsewhere.example"),
    (b"x-http-method-override", b"DELETE"),
    (b"content-encoding", b"gzip"),
]
