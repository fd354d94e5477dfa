"""Random exports of every kind, as CSV and NDJSON: sound ones, and ones with all faults that real exports have.

Each cell that a person could have filled has `MARKER` in it, so that leaks are found.
"""

import csv
import gzip
import io
import json
import re
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from tests.support.generated_cells import (
    AMOUNTS,
    BLANKS,
    COLUMNS,
    ENDS,
    HOURS,
    MARKER,
    NEEDED,
    ODD_AMOUNTS,
    ODD_DATES,
    ODD_IDS,
    ODD_KEYS,
    ODD_LINES,
    ODD_TEXTS,
    ODD_VALUES,
    TEXTS,
)


@dataclass
class Record:
    """The cells of a row by column. sound: true if all are right, so that the row must be accepted."""

    cells: dict[str, Any]
    sound: bool = True


@dataclass
class GeneratedFile:
    """A file as bytes. sound: true if its form is right, so that all readers agree about its rows.

    encoding: the one that its feed names. records: the records of a sound file in order. header: the columns of a CSV.
    spoiled: true if random bytes were changed, perhaps in the header.
    """

    kind: str
    form: str
    name: str
    data: bytes = b""
    encoding: str = "utf-8"
    delimiter: str = ","
    sound: bool = True
    spoiled: bool = False
    records: list[Record] = field(default_factory=list)
    header: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Return the text. Bytes that are not valid become surrogates."""
        data = gzip.decompress(self.data) if self.data.startswith(b"\x1f\x8b") else self.data
        return data.decode(self.encoding, "surrogateescape").removeprefix("\ufeff").removeprefix("\ufeff")


class FileMaker:
    """Draw files. No two files share a key."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.made = 0

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def file(self) -> GeneratedFile:
        """Draw a file: sound, with odd rows, or with random bytes changed."""
        self.made += 1
        kind = self.random.choice([*COLUMNS, "payments"])
        form = "ndjson" if kind != "till" and self.chance(0.4) else "csv"
        name = f"{kind}-{self.made}.{form}"
        made = GeneratedFile(kind, form, name, sound=self.chance(0.4))
        if kind == "till":
            made.encoding, made.delimiter = "windows-1252", ";"
        made.records = self.records(kind, 0.0 if self.chance(0.3) else 0.15)
        text = self.csv(made) if form == "csv" else self.ndjson(made)
        made.data = text.encode(made.encoding, "surrogateescape" if made.encoding == "utf-8" else "replace")
        if not made.sound and self.chance(0.4):
            made.data, made.spoiled = self.spoiled(made.data), True
        elif not made.sound:
            made.data = self.spoiled_behind_header(made.data)
        if self.chance(0.1):
            made.data, made.name = gzip.compress(made.data, mtime=0), f"{name}.gz"
            made.data = made.data[: -self.random.randrange(1, 30)] if not made.sound and self.chance(0.2) else made.data
        return made

    # --- Records ----------------------------------------------------------------------------------

    def records(self, kind: str, odd: float) -> list[Record]:
        number = self.random.choice([0, 1, 2, 3, 5, 8, 8, 13, 30])
        found = [row for place in range(number) for row in self.rows_of_one(kind, f"{MARKER}k{self.made}x{place}", odd)]
        for one in [one for one in found if self.chance(0.06)]:
            again = Record(dict(one.cells), one.sound)
            if self.chance(0.5) and "amount" in again.cells:
                again.cells["amount"] = "77777.77"
            found.insert(self.random.randrange(len(found) + 1), again)
        if kind == "answers" and self.chance(0.3):
            self.random.shuffle(found)
        return found

    def rows_of_one(self, kind: str, key: str, odd: float) -> list[Record]:
        """Return the rows of one record: a row per question for answers, else one row."""
        key = self.key(key)
        patient = self.patient()
        day = self.day()
        if kind == "payments":
            claim = self.random.choice(["", "", f"{MARKER}c1", f"Claim/{MARKER}c2"])
            rows = [{"payment_id": key, "patient_id": patient, "amount": self.amount(), "paid_on": day}]
            rows[0]["claim_id"] = claim
        elif kind == "till":
            day = f"{self.random.randrange(1, 29):02}.{self.random.randrange(1, 13):02}.2026"
            cents = self.random.randrange(1, 999_999)
            amount = f"{cents // 100:,}".replace(",", ".") + f",{cents % 100:02}"
            rows = [{"Beleg": key, "Kartei": patient, "Betrag": amount, "Datum": day}]
            rows[0]["Art"] = self.random.choice("ZZZS")
        elif kind == "mood":
            answers = {"Q1": self.random.choice(["LA1", "LA2"]), "Q2": self.text(), "Q3": self.number()}
            rows = [{"form": key, "who": patient, "authored": day} | answers]
        elif kind == "tasks":
            rows = [self.task(key, patient, day)]
        else:
            rows = [*self.answers(key, patient, day)]
        return [self.perhaps_odd(kind, row) if self.chance(odd) else Record(row) for row in rows]

    def task(self, key: str, patient: str, day: str) -> dict[str, str]:
        comment = f"{MARKER} {self.random.choice(TEXTS)}" if self.chance(0.3) else ""
        return {
            "task_id": key,
            "patient_id": self.random.choice(["", patient, patient]),
            "description": self.text(),
            "status": self.random.choice(["requested", "completed", "cancelled"]),
            "requester_id": f"{MARKER}d{self.random.randrange(3)}",
            "authored": self.random.choice(["", day]),
            "due": self.random.choice(["", self.day()]),
            "labels": self.random.choice(["", f"{MARKER}a;{MARKER}b", f"{MARKER};;{MARKER} "]),
            "comment": comment,
            "comment_author_id": f"{MARKER}d1" if comment else "",
        }

    def answers(self, key: str, patient: str, day: str) -> list[dict[str, str]]:
        head = {"response_id": key, "patient_id": patient, "questionnaire": self.random.choice(["q1", "q"])}
        head["authored"] = self.random.choice(["", day])
        kinds = [("1", "answer_code", "LA1"), ("2", "answer_text", self.text()), ("4", "answer_number", self.number())]
        empty = dict.fromkeys(("answer_code", "answer_text", "answer_number"), "")
        chosen = self.random.sample(kinds, self.random.randrange(1, 4))
        return [head | {"question": link} | empty | {column: cell} for link, column, cell in chosen]

    def perhaps_odd(self, kind: str, row: dict[str, Any]) -> Record:
        """Return a row, perhaps with odd cells, which need not be faults."""
        pools: dict[str, tuple[str, ...]] = {"amount": ODD_AMOUNTS, "Betrag": ODD_AMOUNTS}
        pools |= {"answer_number": ODD_AMOUNTS, "Q3": ODD_AMOUNTS}
        pools |= dict.fromkeys(("paid_on", "authored", "due", "Datum"), ODD_DATES)
        references = "patient_id requester_id claim_id who Kartei comment_author_id".split()
        pools |= dict.fromkeys(references, ODD_IDS)
        pools |= {COLUMNS[kind][0]: ODD_KEYS}
        for column in self.random.sample([*row], self.random.choice([1, 1, 2])):
            row[column] = self.random.choice(pools.get(column, ODD_TEXTS))
        return Record(row, sound=False)

    def key(self, plain: str) -> str:
        blank = self.random.choice(BLANKS)
        spelled = (plain.replace("x", blank), f"{blank}{plain}", f"{plain}é", f"{plain}e\u0301", f"{plain}/#")
        return self.random.choice((plain, plain, plain, *spelled))

    def patient(self) -> str:
        return self.random.choice([f"{MARKER}p1", f"{MARKER}p2", f"{MARKER}p3", f"Patient/{MARKER}p4", f" {MARKER}p5"])

    def amount(self) -> str:
        cents = self.random.choice([1, 99, 100, self.random.randrange(1, 99_999), self.random.randrange(1, 999_999)])
        if self.chance(0.1):
            return f"{cents}"
        form = self.random.choice(AMOUNTS)
        return form.format(cents // 100, cents % 100) if not form.endswith("0") or cents < 100 else f"{cents // 100}.50"

    def number(self) -> str:
        return self.random.choice(["7", "7.5", "-1", "0", "0.10", "1e2", "12345678.9", " 3 "])

    def text(self) -> str:
        return f"{MARKER}{self.random.randrange(999)} {self.random.choice(TEXTS)}"

    def day(self) -> str:
        day = f"2026-{self.random.randrange(1, 13):02}-{self.random.randrange(1, 29):02}"
        return day + self.random.choice(HOURS)

    # --- CSV --------------------------------------------------------------------------------------

    def csv(self, made: GeneratedFile) -> str:
        made.header = self.columns(made)
        ends = list(ENDS) if self.chance(0.1) else [self.random.choice(ENDS)]
        quote = self.random.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        write = partial(self.line, made.delimiter, quote)
        rows = [[one.cells.get(name, f"{MARKER}else") for name in made.header] for one in made.records]
        lines = [write(cells) + self.random.choice(ends) for cells in (made.header, *rows)]
        if not made.sound:
            lines = self.with_odd_rows(lines, ends, made)
        elif self.chance(0.2):
            lines.insert(self.random.randrange(1, len(lines) + 1), self.random.choice(ENDS))
        if made.kind == "till":
            lines[:0] = [f"{MARKER} Kassenbuch;;{ends[0]}", ends[0]] if made.sound or self.chance(0.9) else []
            last = ["Summe" if name == "Beleg" else "" for name in made.header]
            lines.append(write(last) + ends[0] if made.sound or self.chance(0.8) else "")
        text = "".join(lines)
        if self.chance(0.15):
            text = text.rstrip("\r\n")
            made.sound = False
        return "\ufeff" + text if made.encoding == "utf-8" and self.chance(0.2) else text

    def columns(self, made: GeneratedFile) -> list[str]:
        every = COLUMNS[made.kind]
        names = every[: self.random.choice([NEEDED[made.kind], len(every), len(every)])]
        names = [*names, *self.random.choice([[], [], ["note"], ["", ""], ["note", "note"]])]
        if self.chance(0.4):
            self.random.shuffle(names)
        if not made.sound and self.chance(0.08):
            odd = ("", *(name.upper() for name in names), names[0], "a\0", "_reject_id", '"')
            names[self.random.randrange(len(names))] = self.random.choice(odd)
        return names

    @staticmethod
    def line(delimiter: str, quoting: Any, cells: list[str]) -> str:
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator="\r\n").writerow(cells)
        return text.getvalue().removesuffix("\r\n")

    def with_odd_rows(self, lines: list[str], ends: list[str], made: GeneratedFile) -> list[str]:
        header, *rows = lines
        for _ in range(self.random.choice([0, 1, 1, 2, 4])):
            place = self.random.randrange(len(rows) + 1)
            some = self.random.choice(rows) if rows else header
            rows.insert(place, self.odd_row(header, some, made) + self.random.choice(["", *ends, *ends, *ends]))
        if rows and self.chance(0.3):
            place = self.random.randrange(len(rows))
            rows[place] = self.torn_row(rows[place], made.delimiter)
        if self.chance(0.1):
            rows += [header, *rows]
        return rows if self.chance(0.04) else [header, *rows]

    def odd_row(self, header: str, some: str, made: GeneratedFile) -> str:
        """Return a line that is no row, or a row unlike the others."""
        sign, plain = made.delimiter, some.rstrip("\r\n")
        rows = (
            *("", " ", sign * 4, sign * 9, f'""{sign}""', '""', "\x1a", "\u00a0", "\t", "\x0c"),
            *(f"# {MARKER} comment", "---", header.rstrip("\r\n"), f"\ufeff{header.rstrip()}"),
            *(f"{plain}{sign}{MARKER}", plain.rpartition(sign)[0], f"Total{sign}{sign}77777.77{sign}"),
            *(f"{sign}{sign}77777.77", f'"{MARKER}', f'{plain}"', f'"{plain}', "\0" * 3, f"{plain}{sign}" * 3),
            *(plain.replace(sign, ";" if sign == "," else ","), f"{plain}\\", "'" + plain, f"{plain}\udce4"),
            f'{MARKER}k{sign}"{plain}',
        )
        return self.random.choice(rows)

    def torn_row(self, row: str, sign: str) -> str:
        place = self.random.randrange(len(row) + 1)
        puts = (
            *('"', '"', '""', sign, "\n", "\r", "\0", "\udcff", "\udce4\udcf6", "\\", "\u2028", "\x1c", '"\n"'),
            *(f'"{sign}"', "\ufeff"),
        )
        return row[:place] + self.random.choice(puts) + row[place + self.random.randrange(2) :]

    # --- NDJSON -----------------------------------------------------------------------------------

    def ndjson(self, made: GeneratedFile) -> str:
        ends = list(ENDS) if self.chance(0.1) else [self.random.choice(ENDS)]
        lines = [self.object(made, one) for one in made.records]
        if not made.sound:
            for _ in range(self.random.choice([0, 1, 2, 4])):
                lines.insert(self.random.randrange(len(lines) + 1), self.random.choice(["", " ", *ODD_LINES]))
            lines = [self.torn_row(line, ",") if line and self.chance(0.05) else line for line in lines]
        text = "".join(line + self.random.choice(ends) for line in lines)
        text = text.rstrip("\r\n") if self.chance(0.15) else text
        return "\ufeff" + text if self.chance(0.1) else text

    def object(self, made: GeneratedFile, one: Record) -> str:
        ascii_only = self.chance(0.5)
        cells = {name: cell for name, cell in one.cells.items() if cell or self.chance(0.3)}
        members = [(name, json.dumps(cell, ensure_ascii=ascii_only)) for name, cell in cells.items()]
        members = [(name, self.as_number(name, text)) for name, text in members]
        if not made.sound and self.chance(0.15):
            place = self.random.randrange(len(members) + 1)
            name = self.random.choice([*COLUMNS[made.kind], "note", "resourceType", "comments", ""])
            members.insert(place, (name, self.random.choice(ODD_VALUES)))
            one.sound = False
        between, colon = self.random.choice([(",", ":"), (", ", ": "), ("\t,", " : ")])
        return "{" + between.join(f"{json.dumps(name)}{colon}{value}" for name, value in members) + "}"

    def as_number(self, name: str, text: str) -> str:
        """Return a text, now and then as a JSON number if it can be one. An exponent would change the digits."""
        if name in ("amount", "answer_number", "Q3") and self.chance(0.5) and _JSON_NUMBER.fullmatch(text[1:-1]):
            return text[1:-1]
        return text

    # --- Bytes ------------------------------------------------------------------------------------

    def spoiled(self, data: bytes) -> bytes:
        kinds = [self.cut, self.cut, self.changed, self.changed, self.changed, self.shuffled, self.in_another_encoding]
        kinds += [self.with_zeros, self.binary]
        return self.random.choice(kinds)(data)

    def spoiled_behind_header(self, data: bytes) -> bytes:
        """Return the file with its rows cut or changed. Half of the files stay as they are."""
        header, end, rows = data.partition(b"\n")
        if not rows or self.chance(0.5):
            return data
        return header + end + self.random.choice((self.cut, self.changed))(rows)

    def cut(self, data: bytes) -> bytes:
        return data[: self.random.randrange(len(data) + 1)]

    def changed(self, data: bytes) -> bytes:
        found = bytearray(data)
        for _ in range(self.random.choice([1, 1, 2, 5]) if found else 0):
            place = self.random.randrange(len(found))
            puts = (
                *(b"", b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"\xe4", bytes([self.random.randrange(256)])),
                *(b'"\n', b"{", b"}"),
            )
            found[place : place + self.random.randrange(3)] = self.random.choice(puts)
            found = found or bytearray(b" ")
        return bytes(found)

    def shuffled(self, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        self.random.shuffle(lines)
        return b"".join(lines)

    def in_another_encoding(self, data: bytes) -> bytes:
        text = data.decode("utf-8", "replace")
        others = ("latin-1", "utf-16", "utf-16-le", "cp037", "utf-32", "shift-jis")
        return text.encode(self.random.choice(others), "replace")

    def with_zeros(self, data: bytes) -> bytes:
        return data + bytes(self.random.choice([1, 70, 5_000]))

    def binary(self, data: bytes) -> bytes:
        starts = (
            *(b"PK\x03\x04", b"%PDF", b"\x1f\x8b\x08", b"[{", b"<html>", b"", b"{\n", b"\xff\xfe"),
            b"SQLite format 3\0",
        )
        return self.random.choice(starts) + (self.random.randbytes(40) if self.chance(0.5) else data)


_JSON_NUMBER = re.compile(r"(?:0|[1-9]\d*)(?:\.\d+)?")
