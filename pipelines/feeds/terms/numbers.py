"""The number format of an export: decimal sign, thousands, currency, and the ways to write a minus."""

import re
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property

_SPACE = r"[\s\u00a0\u2009\u202f]*+"
"""Possessive: takes all blanks and never gives one back, since an amount has eight such places."""
_SIGN = r"[+\-\u2212]"
_THOUSANDS = {" ": r"[ \u00a0\u2009\u202f]", "'": "['\u2019]"}


@dataclass(frozen=True)
class NumberFormat:
    """A number format.

    * decimal: `.` or `,`.
    * thousands: the sign between groups of three digits.
    * currency: the currency signs that may be beside an amount.
    """

    decimal: str = "."
    thousands: str = ""
    currency: tuple[str, ...] = ()

    def amount(self, text: str) -> str | None:
        """Return `-1234.50` for `(1,234.50)`, `-$1,234.50` and `1,234.50-`; None for a text that is no amount."""
        if self.decimal == "." and _SIMPLE.fullmatch(text):
            return text
        found = self._amount.fullmatch(text.strip())
        if not found or bool(found["open"]) != bool(found["close"]) or (found["before"] and found["after"]):
            return None
        signs = [sign for sign in found.group("s1", "s2", "s3", "s4", "open") if sign]
        if len(signs) > 1:
            return None
        return ("-" if signs and signs[0] != "+" else "") + self._plain(found["number"])

    def could_be_thousands(self, plain: str) -> bool:
        """True if an amount from `amount`, such as `1.500`, may mean a thousand times as much.

        Only possible if the feed names no thousands sign.

        An amount with a third decimal other than zero cannot be paid anyway.
        """
        return not self.thousands and bool(_THREE_DECIMALS.fullmatch(plain))

    def number(self, text: str) -> str | None:
        """Return a number without currency, its sign in front; None if it is no number. An exponent stays."""
        found = self._number.fullmatch(text.strip())
        return found["sign"] + self._plain(found["number"]) + (found["exponent"] or "") if found else None

    def scaled(self, text: str, scale: Decimal) -> str:
        """Return the number times the scale, in the feed's format; a text that is no number is returned unchanged."""
        plain = self.number(text) or self.amount(text)
        value = Decimal(plain) if plain and len(plain) <= _LONGEST else None
        if value is None or abs(value.adjusted()) >= _LONGEST:
            return text
        return self.written(_short(_EXACT.multiply(value, scale)))

    def written(self, value: Decimal) -> str:
        """Return a number as the export would write it, without thousands separators."""
        return f"{value:f}".replace(".", self.decimal)

    def of(self, value: Decimal) -> str:
        """Return a source's number as text, without zeros after the second decimal, which could mean thousands."""
        return self.written(_short(value))

    @property
    def example(self) -> str:
        """Return an example of an amount in this format."""
        return f"1{self.thousands}234{self.decimal}50"

    def _plain(self, text: str) -> str:
        whole, _, rest = text.partition(self.decimal)
        if self.thousands:
            whole = re.sub(r"\D", "", whole, flags=re.ASCII)
        return f"{whole or '0'}.{rest}" if rest else whole

    @cached_property
    def _digits(self) -> str:
        between = _THOUSANDS.get(self.thousands, re.escape(self.thousands))
        whole = rf"[1-9]\d{{0,2}}(?:{between}\d{{3}})+|\d+" if self.thousands else r"\d+"
        point = re.escape(self.decimal)
        return rf"(?P<number>(?:{whole})(?:{point}\d*)?|{point}\d+)"

    @cached_property
    def _amount(self) -> re.Pattern[str]:
        signs = "|".join(re.escape(sign.strip()) for sign in sorted(self.currency, key=len, reverse=True)) or r"(?!)"
        parts = [
            r"(?P<open>\()?",
            rf"(?P<s1>{_SIGN})?",
            rf"(?P<before>{signs})?",
            rf"(?P<s2>{_SIGN})?",
            self._digits,
            rf"(?P<s3>{_SIGN})?",
            rf"(?P<after>{signs})?",
            rf"(?P<s4>{_SIGN})?",
            r"(?P<close>\))?",
        ]
        return re.compile(_SPACE.join(parts), re.ASCII)

    @cached_property
    def _number(self) -> re.Pattern[str]:
        return re.compile(rf"(?P<sign>[+-]?){self._digits}(?P<exponent>[eE][+-]?\d{{1,3}})?", re.ASCII)


def with_a_decimal(value: Decimal) -> Decimal:
    """Return a number written with an exponent (`1.2e17`) with a decimal; any other number unchanged.

    The decimal shows that the number is no key, since its last digits may be lost.
    """
    exponent = value.as_tuple().exponent
    return Decimal(f"{value:f}.0") if isinstance(exponent, int) and exponent > 0 else value


def _short(value: Decimal) -> Decimal:
    """Return a number with two decimals if the others are zeros: `12.340`, from `1234.0` cents, means no thousands."""
    _, _, decimals = f"{value:f}".partition(".")
    short = value.quantize(CENT, context=_EXACT)
    return short if len(decimals) > 2 and short == value else value


_SIMPLE = re.compile(r"\d{1,9}\.\d\d", re.ASCII)
_THREE_DECIMALS = re.compile(r"-?[1-9]\d{0,2}\.\d\d0", re.ASCII)
_LONGEST = 60
CENT = Decimal("0.01")
_EXACT = Context(prec=1000)
PLAIN = NumberFormat()
