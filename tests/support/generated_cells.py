"""The parts of generated files: their feeds, and cells and lines that are right, rare or wrong."""

MARKER = "zqzq"
NOBODY = f"{MARKER}nobody"
"""A patient whom the target does not have."""
COLUMNS = {
    "payments": "payment_id patient_id amount paid_on claim_id".split(),
    "answers": "response_id patient_id questionnaire authored question answer_code answer_text answer_number".split(),
    "tasks": "task_id patient_id description status requester_id authored due labels comment comment_author_id".split(),
    "mood": "form who authored Q1 Q2 Q3".split(),
    "till": "Beleg;Kartei;Betrag;Datum;Art".split(";"),
}
NEEDED = {"payments": 4, "answers": 8, "tasks": 5, "mood": 6, "till": 5}
"""The least number of columns in a file of each kind."""
TOML = {
    "mood": """
kind = "answers"
files = ["mood*"]
[columns]
response_id = "form"
patient_id = "who"
questionnaire = { constant = "q1" }
authored = "authored"
[questions]
"1" = "Q1"
"2" = "Q2"
"4" = "Q3"
""",
    "till": """
kind = "payments"
files = ["till*"]
encoding = "windows-1252"
delimiter = ";"
header = 3
decimal = ","
thousands = "."
currency = "€"
dates = "%d.%m.%Y"
take = { Art = "Z" }
trailer = { when = { Beleg = "Summe" } }
[columns]
payment_id = "Beleg"
patient_id = "Kartei"
amount = "Betrag"
paid_on = "Datum"
""",
}
OPTIONS = [{"system": "http://loinc.org", "code": f"LA{number}", "display": f"Größe {number}"} for number in (1, 2)]
FORM = {
    "resourceType": "Questionnaire",
    "id": "q1",
    "name": "q",
    "status": "active",
    "item": [
        {"linkId": "1", "text": "One", "type": "choice", "answerOption": [{"valueCoding": each} for each in OPTIONS]},
        {"linkId": "2", "text": "Two", "type": "text", "repeats": False},
        {"linkId": "4", "text": "Four", "type": "decimal", "repeats": False},
    ],
}
ENDS = ("\n", "\r\n", "\r")
BLANKS = (" ", "\u00a0", "\u2009", "\u3000", "\u202f")

# --- Cells ----------------------------------------------------------------------------------------

TEXTS = (
    *("fine", "a, b; c | d", 'said "no" twice', "'quoted'", "first\nsecond", "first\r\nsecond", "two  blanks"),
    *("ä ö ü ß", "漢字 かな", "e\u0301 and é", "\U0001f469\u200d⚕️", "\u05e9\u05dc\u05d5\u05dd", "tab\there", "=1+1"),
    *("\\ \\n", "a\u00a0b", "a\u2028b", "100%", "NULL", "{}", '"', ",", "-", "# no comment", "[1, 2]", "x\u200bx"),
    *("it''s", "\u2013"),
)
"""Texts that may follow a marker in a correct cell."""
ODD_TEXTS = (
    *("", " ", "\u3000", "\x1a", "a\x01b", "a\u0085b", "a\x1cb", "a\x0bb", "a\x0cb", "bell\a", "a\rb", "a\0b"),
    *("\ufeffa", "\x7f", "\x1b[31mred", "a\ue000b", "\ufffd", "a" + "\u0301" * 90, "\u202ereversed", "<b>bold</b>"),
    *("&amp;", "x" * 140_000, "é" * 3_000),
)
ODD_KEYS = (
    *("", " ", "\u3000", "\t", "7.0", "1.2E+14", "\u200d", "null", '""', "k" * 201, "#", "Summe", "Total"),
    *("_reject_id", f"{MARKER}\u200dk", f"{MARKER}\tk", f"{MARKER}\nk", f"{MARKER}\0k", f"{MARKER}~2", f"{MARKER}|k"),
    f" {MARKER}\u0301",
)
AMOUNTS = ("{}.{:02}", "{}.{:02}", "{}.{:02}", " {}.{:02} ", "+{}.{:02}", "0{}.{:02}", "{}.{:02}0")
ODD_AMOUNTS = (
    *("0", "0.00", "-5.00", "(5.00)", "5.00-", "-0.00", "1,234.50", "1.500", "12.345", "1e3", "$5", "5.00 USD"),
    *("NaN", "Infinity", "", " ", "٩.99", "9" * 30, "9999999999999.99", "10000000000000", "0.1 0", "12.5O", "--5"),
    *("1'000.00", ".", "+", "1.2.3", "99999999.99", "1" + " " * 150, "0x10", "1_000", "½", "5.00\n", "2026-01-01"),
    *("1E-400", "-", "5,", "1.234.567,89", "€ 7,00"),
)
HOURS = ("", "", "T10:00:00Z", "T10:00:00+02:00", " 10:00", "T23:59:59.123", "T00:30:00-11:00", "T10:00:00,5Z")
ODD_DATES = (
    *("", " ", "05.01.2026", "2026-02-30", "2026-01-05T24:00:00Z", "9999-12-31T23:59:59-14:00"),
    *("0001-01-01T00:00:00+14:00", "２０２６-01-05", "20260105", "2026-1-5", "2026-01-05T10:00:60Z", "1700000000"),
    *("2026-W01-1", "2026-01-05T10:00:00+25:00", "01/05/2026", "0000-00-00", "2026-01-05T", "10:00", "Jan 5, 2026"),
    *("0001-01-01", "9999-12-31", "2026-01-05\n", "-2026-01-05"),
)
ODD_IDS = (
    *("", " ", NOBODY, "a b", "x" * 65, f"Patient/{MARKER}p1", f"Group/{MARKER}g", "Patient/", "p_1", "ä", "../p"),
    *(f"urn:{MARKER}", "p1\n"),
)
ODD_VALUES = (
    *("null", "true", "[]", "{}", '{"a":[1]}', "17", "17.0", "-0", "1e3", "1E400", "1e-400", "9" * 400, "NaN"),
    *("Infinity", '""', '"\\ud800"', '"\\u0000"', '"\\ud83d\\ude00"', "[" * 60 + "]" * 60, "[" * 400 + "]" * 400),
    *('["a","b"]', '[{"text":"zqzq"}]', "01", "1.", ".5", "+1", "0.1e1", "12.340", '"\\u0022"', '"\\/"', "1e5"),
    *("-5.00", "1.005", "'zqzq'", "undefined"),
)
ODD_LINES = (
    *(
        "[]",
        "null",
        '"zqzq"',
        "17",
        "{",
        "}",
        "{}",
        '{"a":',
        '{"zqzq"}',
        "// zqzq",
        "# zqzq",
        '{"payment_id":"zqzq1",}',
    ),
    *('[{"a":1}]', '{"_text":"zqzq"}', '{"_reject_id":"0123456789abcdef","_text":"zqzq"}', '{"resourceType":"Task"}'),
    *("\ufeff{}", "\u2028", "\x1a", "\x00", '{"resourceType":"PaymentNotice","id":"zqzqr","amount":{"value":1e999}}'),
    '{"resourceType":["zqzq"],"id":1}',
)
