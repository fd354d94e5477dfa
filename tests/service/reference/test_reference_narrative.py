"""The narrative of a loaded report: what stays, and that nothing gets out of the page."""

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fhir_service.interface.datatypes import CONTROLS
from fhir_service.reference.narrative import paragraphs, sanitised

START = '<div xmlns="http://www.w3.org/1999/xhtml">'


@pytest.mark.parametrize(
    ("loaded", "shown"),
    [
        ("<div><p>a &lt; b &amp; c</p><br/></div>", "<p>a &lt; b &amp; c</p><br/>"),
        ("<div><p onclick='x()'>a</p></div>", "<p>a</p>"),
        ("<div><p ONCLICK=x style='color:red' class='b'>a</p></div>", '<p style="color:red" class="b">a</p>'),
        ("<div><p style='background:url(http://e/x)'>a</p></div>", "<p>a</p>"),
        ("<div>a<script>alert(1)</script><style>p{}</style>b</div>", "ab"),
        ("<div>a<script>never closed", "a"),
        ("<div>a<iframe src='http://e'>x</iframe><form><input value='y'/>b</form></div>", "ab"),
        ("<div><a href='http://evil.example/'>a</a><a href='#x'>b</a></div>", '<a>a</a><a href="#x">b</a>'),
        ("<div><a href='java&#10;script:x()'>a</a></div>", "<a>a</a>"),
        ("<div>a<img src='http://evil.example/x.png' alt='x'/></div>", "a"),
        (
            "<div><img src='data:image/png;base64,AA==' alt='x'/></div>",
            '<img src="data:image/png;base64,AA==" alt="x"/>',
        ),
        ("<div>a<img src='data:image/svg+xml;base64,AA=='/></div>", "a"),
        ("<div>a<svg onload='x()'><p>b</p></svg>c</div>", "ac"),
        ("<div>a<!-- c --><?pi x?><![CDATA[<b>]]>b</div>", "ab"),
        ("<div><b>a<i>b</b>c</div>", "<b>a<i>b</i></b>c"),
        ("<div><table><tr><td colspan='2'>a", '<table><tr><td colspan="2">a</td></tr></table>'),
        ("<div>a</div></div><p>b</p>", "a<p>b</p>"),
        ("<div>a&nbsp;b&#1;&#x94;c\x07</div>", "a\xa0b\u201dc"),
        ('<div><p title="&quot;&gt;&lt;script&gt;">a</p></div>', '<p title="&quot;&gt;&lt;script&gt;">a</p>'),
        ("no element", "no element"),
    ],
)
def test_a_narrative_is_reduced_to_what_FHIR_allows(loaded: str, shown: str) -> None:
    """DR-06"""
    assert sanitised(loaded) == f"{START}{shown}</div>"


def test_the_outermost_div_keeps_its_attributes() -> None:
    assert sanitised('<div xmlns="x" lang="en" onload="y">a</div>') == f'{START[:-1]} lang="en">a</div>'


@pytest.mark.parametrize("loaded", ["", "<div/>", "<div><script>x</script> </div>", "<div><p></p></div>"])
def test_a_narrative_without_text_is_left_out(loaded: str) -> None:
    """DR-07: a summary takes its place."""
    assert sanitised(loaded) is None


def test_a_summary_is_escaped() -> None:
    assert paragraphs("a<b", "") == f"{START}<p>a&lt;b</p></div>"


PIECES = st.sampled_from(
    [
        *("<div> </div> <p> </p> <td_colspan=2> <b_a=1_A=2> </b> <a_href='http://x'> <a_href='#x'> </a>".split()),
        *("<script> </script> <svg/onload=x()> <img_src=x_onerror=y> <!-- --> <![CDATA[ ]]> <?x ?>".split()),
        *("&lt; &#60;script&#62; &#148; \x94 < > \" ' ] x _".split(" ")),
    ]
).map(lambda piece: piece.replace("_", " "))


@given(st.lists(PIECES | st.text(max_size=5), max_size=25).map("".join))
def test_any_loaded_narrative_becomes_well_formed_and_harmless(loaded: str) -> None:
    """DR-06"""
    shown = sanitised(loaded)
    if shown is None:
        return
    assert not CONTROLS.search(shown)
    for element in ET.fromstring(shown).iter():  # noqa: S314 - it is what is tested
        assert re.fullmatch(r"\{http://www.w3.org/1999/xhtml\}(div|p|a|b|td)", element.tag)
        for name, value in element.attrib.items():
            assert name == "colspan" or (name, value) == ("href", "#x")
    assert sanitised(shown) == shown
