"""Render pages as HTML: the templates, the format of values, and the headers of every page."""

import hashlib
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, Response

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    # Not no-referrer: under it a browser sends forms with `origin: null`.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
}
PROBLEMS = {
    400: ("This address cannot be read", "Check the address, or start from the list of patients."),
    403: ("This client may not see this page", "Its scopes do not include what the page shows."),
    404: ("There is no such page", "Nothing in this chart has this address."),
    405: ("This page is only for reading", "The chart shows what is recorded; nothing is changed here."),
    500: ("Something went wrong", "The fault is on this side and was noted. Trying again may help."),
    503: ("The chart cannot be shown now", "The service cannot do its work at the moment. Try again in a while."),
}


class Pages:
    """Render the templates of a chart at `path`: the path of the base URL, and `/chart`."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def _environment(self) -> "Environment":
        from jinja2 import Environment, FileSystemLoader, StrictUndefined  # once a page is asked for

        made = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        made.filters |= {"money": money, "moment": moment, "stamp": stamp}
        made.globals |= {"chart": self.path, "style": f"{self.path}/style-{self._fingerprint}.css"}
        return made

    @cached_property
    def style(self) -> bytes:
        return (TEMPLATES / "chart.css").read_bytes()

    @cached_property
    def _fingerprint(self) -> str:
        return hashlib.sha256(self.style).hexdigest()[:12]

    @property
    def style_name(self) -> str:
        """Return the name of the style sheet, which changes with its content."""
        return f"style-{self._fingerprint}.css"

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self._environment.get_template(template).render(values), status, HEADERS)

    def problem(self, status: int, viewer: Any, headers: dict[str, str] | None = None) -> Response:
        """Return the page for a request that cannot be answered."""
        title, advice = PROBLEMS.get(status, PROBLEMS[500])
        response = self.page("problem.html", status, viewer=viewer, title=title, advice=advice, code=status)
        response.headers.update(headers or {})
        return response


def money(cents: int) -> str:
    """Return cents as `$1,234.50`, with a minus sign before a negative amount."""
    dollars, rest = divmod(abs(cents), 100)
    sign = "\N{MINUS SIGN}" if cents < 0 else ""
    return f"{sign}${dollars:,}.{rest:02}"


def moment(time: str | datetime) -> str:
    """Return a time for people, in UTC: `05 Mar 2026 14:30`. A date has no time, part of a date stays as it is."""
    if isinstance(time, datetime):
        return time.astimezone(UTC).strftime("%d %b %Y %H:%M")
    if len(time) < 10:
        return time
    # strftime does not pad years before 1000; such a date stays in figures.
    if time < "1000":
        return time
    return datetime.fromisoformat(time).strftime("%d %b %Y" if len(time) == 10 else "%d %b %Y %H:%M")


def stamp(time: str | datetime) -> str:
    """Return a time in the form for machines."""
    return time.astimezone(UTC).isoformat(timespec="seconds") if isinstance(time, datetime) else time
