"""The narrative of a loaded report, reduced to what FHIR allows: text, tables, lists, and no way out of the page.

Scripts, event handlers, forms, frames, style that loads something and links to the outside do not come through.
"""

import re
from html import escape
from html.parser import HTMLParser

from fhir_service.interface.datatypes import CONTROLS

XHTML = "http://www.w3.org/1999/xhtml"
_ELEMENTS = frozenset(
    "a abbr acronym b big blockquote br caption cite code col colgroup dd dfn div dl dt em h1 h2 h3 h4 h5 h6 hr i "
    "img li ol p pre q samp small span strong sub sup table tbody td tfoot th thead tr tt ul var".split()
)
_EMPTY = frozenset(["br", "col", "hr", "img"])
_ATTRIBUTES = frozenset(
    "abbr align alt axis border cellpadding cellspacing char charoff class colspan dir frame headers height id lang "
    "name rowspan rules scope span title valign width xml:lang".split()
)
# Elements that go together with what is in them; of others that are not allowed, the content stays.
_DROPPED = frozenset(
    "applet audio button canvas datalist embed frame frameset head iframe input math noembed noframes noscript object "
    "option script select style svg template textarea title video".split()
)
_DROPPED_EMPTY = frozenset(["embed", "frame", "input"])
_FRAGMENT = re.compile(r"#[\w\-.:]+\Z", re.ASCII)
_IMAGE = re.compile(r"data:image/(?:png|gif|jpeg);base64,[A-Za-z0-9+/=\s]+\Z|#[\w\-.:]+\Z", re.ASCII)
# Declarations without functions, escapes, comments or at-rules: nothing in them can load anything.
_STYLE = re.compile(r"[\w\s:;.,#%\-]*\Z", re.ASCII)
_VALUES = {"href": _FRAGMENT, "src": _IMAGE, "style": _STYLE}
_NOT_XML = re.compile("[\ufffe\uffff]")


class _Narrative(HTMLParser):
    """A parser that writes what it is fed as well-formed XHTML, within one `div`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self.root = ""
        self.open: list[str] = []
        self.dropped: list[str] = []
        self.says_something = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _DROPPED:
            if tag not in _DROPPED_EMPTY:
                self.dropped.append(tag)
        elif not self.dropped and tag in _ELEMENTS:
            self._start(tag, _allowed(dict(attrs)))

    def _start(self, tag: str, allowed: dict[str, str]) -> None:
        written = "".join(f' {name}="{escape(value)}"' for name, value in allowed.items())
        if tag == "div" and not self.out and not self.open and not self.root:
            self.root = written or " "
        elif tag == "img":
            if "src" in allowed:
                self.out.append(f"<img{written}/>")
                self.says_something = True
        elif tag in _EMPTY:
            self.out.append(f"<{tag}{written}/>")
        else:
            self.open.append(tag)
            self.out.append(f"<{tag}{written}>")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.dropped:
            while self.dropped.pop() != tag:
                pass
        elif not self.dropped and tag in self.open:
            while (last := self.open.pop()) != tag:
                self.out.append(f"</{last}>")
            self.out.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self.dropped:
            return
        text = _clean(data)
        self.says_something = self.says_something or bool(text.strip())
        self.out.append(escape(text, quote=False))

    def finish(self) -> str:
        self.close()
        self.out += [f"</{tag}>" for tag in reversed(self.open)]
        return f'<div xmlns="{XHTML}"{self.root.rstrip()}>{"".join(self.out)}</div>'


def _clean(text: str) -> str:
    return _NOT_XML.sub("", CONTROLS.sub("", text))


def _allowed(attributes: dict[str, str | None]) -> dict[str, str]:
    """Return the attributes whose names and values are allowed."""
    found: dict[str, str] = {}
    for name, value in attributes.items():
        text = _clean(value or "")
        pattern = _VALUES.get(name)
        if pattern.match(text) if pattern else name in _ATTRIBUTES:
            found[name] = text
    return found


def sanitised(div: str) -> str | None:
    """Return the part of a narrative's `div` that is allowed; None if no text is left."""
    narrative = _Narrative()
    narrative.feed(div.strip())
    written = narrative.finish()
    return written if narrative.says_something else None


def paragraphs(*texts: str) -> str:
    """Return a `div` of these paragraphs."""
    return f'<div xmlns="{XHTML}">{"".join(f"<p>{escape(text, quote=False)}</p>" for text in texts if text)}</div>'
