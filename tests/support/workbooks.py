"""Workbooks (.xlsx) for tests, written as XML, so that they can hold every oddity."""

from collections.abc import Iterable, Mapping, Sequence
from xml.sax.saxutils import escape

from tests.support.archives import zipped

MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
FORMATS = (
    "General",
    "0.00%",
    "yyyy-mm-dd",
    "dd.mm.yyyy hh:mm",
    "00000",
    "#,##0.00",
    "hh:mm",
    "[h]:mm",
    '"MRN-"0',
    "[$\u20ac-407] 0.00",
)
"""The formats of cells, by index."""

Cell = str | int | float | bool | None | tuple[object, int] | bytes
"""A value; a value with the index of its format; or the XML of a cell, in which {at} is replaced by its address."""


def column(place: int) -> str:
    """Return the letters of a column: `A` for 0, `AA` for 26."""
    name = ""
    place += 1
    while place:
        place, rest = divmod(place - 1, 26)
        name = chr(65 + rest) + name
    return name


def cell(at: str, value: Cell) -> str:
    style = ""
    if isinstance(value, bytes):
        return value.decode().replace("{at}", at)
    if isinstance(value, tuple):
        style, value = f' s="{value[1]}"', value[0]  # type: ignore[assignment]
    if value is None:
        return f'<c r="{at}"{style}/>' if style else ""
    if isinstance(value, bool):
        return f'<c r="{at}" t="b"{style}><v>{int(value)}</v></c>'
    if isinstance(value, str):
        return f'<c r="{at}" t="inlineStr"{style}><is><t xml:space="preserve">{escape(value)}</t></is></c>'
    return f'<c r="{at}"{style}><v>{value!r}</v></c>'


def sheet(
    rows: Iterable[Sequence[Cell]], first: int = 1, merged: Sequence[str] = (), hidden: Sequence[int] = ()
) -> str:
    """Return the XML of a sheet whose rows begin at a line. hidden: the hidden lines."""
    out = [f'<?xml version="1.0"?><worksheet {MAIN}><sheetData>']
    for number, row in enumerate(rows, first):
        cells = "".join(cell(f"{column(place)}{number}", value) for place, value in enumerate(row))
        if cells:
            hides = ' hidden="1"' if number in hidden else ""
            out.append(f'<row r="{number}"{hides}>{cells}</row>')
    out.append("</sheetData>")
    if merged:
        out.append("<mergeCells>" + "".join(f'<mergeCell ref="{each}"/>' for each in merged) + "</mergeCells>")
    return "".join(out) + "</worksheet>"


def workbook(
    sheets: Mapping[str, str],
    is_1904: bool = False,
    parts: Mapping[str, str | bytes] = {},
    hidden: Sequence[str] = (),
) -> bytes:
    """Return a workbook of these sheets. parts: additional or replaced parts. hidden: the hidden sheets."""
    names = list(sheets)
    formats = "".join(f'<numFmt numFmtId="{164 + n}" formatCode="{escape(f, _QUOTE)}"/>' for n, f in enumerate(FORMATS))
    styles = "".join(f'<xf numFmtId="{164 + place}"/>' for place in range(len(FORMATS)))
    links = "".join(
        f'<Relationship Id="r{n}" Type="{OFFICE}/worksheet" Target="worksheets/sheet{n}.xml"/>'
        for n, _ in enumerate(names, 1)
    )
    listed = "".join(
        f'<sheet name="{escape(name)}" sheetId="{n}" r:id="r{n}"{_HIDES if name in hidden else ""}/>'
        for n, name in enumerate(names, 1)
    )
    system = '<workbookPr date1904="1"/>' if is_1904 else "<workbookPr/>"
    kinds = "".join(
        f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="{_SHEET}.worksheet+xml"/>'
        for n, _ in enumerate(names, 1)
    )
    content: dict[str, str | bytes] = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_SHEET}.sheet.main+xml"/>{kinds}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {MAIN} xmlns:r="{OFFICE}">{system}<sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{links}<Relationship Id="s1" '
        f'Type="{OFFICE}/styles" Target="styles.xml"/><Relationship Id="s2" Type="{OFFICE}/sharedStrings" '
        'Target="sharedStrings.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet {MAIN}><numFmts count="{len(FORMATS)}">{formats}</numFmts>'
        f'<cellXfs count="{len(FORMATS)}">{styles}</cellXfs></styleSheet>',
        "xl/sharedStrings.xml": _SHARED,
        **{f"xl/worksheets/sheet{n}.xml": sheets[name] for n, name in enumerate(names, 1)},
    }
    return zipped(content | dict(parts))


_SHARED = f"<sst {MAIN}><si><t>shared</t></si><si><r><t>in</t></r><r><t>parts</t></r></si></sst>"
_HIDES = ' state="hidden"'
_QUOTE = {'"': "&quot;"}
_SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml"
