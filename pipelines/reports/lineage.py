"""The lineage of published columns: the columns of other published tables that each is drawn from, read from its SQL.

DuckDB parses the SQL. A column drawn from anything but a published table, or not named in the SQL, has no lineage.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

Column = tuple[str, str]
"""A published table, and one of its columns."""
Relation = dict[str, frozenset[Column]]
"""The columns of a table, subquery or CTE, in order, each with the published columns that it is drawn from."""
Node = Mapping[str, Any]


def column_lineage(
    db: duckdb.DuckDBPyConnection, select: str, published: Mapping[str, Sequence[str]]
) -> dict[str, list[Column]]:
    """Return, for each column of a SELECT, the published columns that it is drawn from.

    Args:
        db: parses the SELECT. It is passed in, since opening a session takes longer than parsing all published tables.
        published: columns by table.
    """
    [[parsed]] = db.execute("SELECT json_serialize_sql(?)", [select]).fetchall()
    said = json.loads(parsed)
    if said.get("error") or len(said["statements"]) != 1:
        return {}
    tables = {name: {column: frozenset([(name, column)]) for column in columns} for name, columns in published.items()}
    found = _of_node(said["statements"][0]["node"], tables)
    return {column: sorted(drawn) for column, drawn in found.items() if drawn}


def _of_node(node: Node, tables: Mapping[str, Relation]) -> Relation:
    """Return the columns of a query. tables: the relations that its FROM may name."""
    tables = dict(tables)
    for each in node.get("cte_map", {}).get("map", ()):
        tables[each["key"]] = _of_node(each["value"]["query_node"], tables)
    if node["type"] == "SET_OPERATION_NODE":
        return _united([_of_node(each, tables) for each in _branches(node)], str(node.get("setop_type", "")))
    if node["type"] != "SELECT_NODE":
        return {}
    sources = dict(_sources(node.get("from_table") or {}, tables))
    found: Relation = {}
    for expression in node["select_list"]:
        if expression["class"] == "STAR":
            found |= _star(expression, sources)
        else:
            found[_name(expression)] = frozenset(_drawn(expression, sources, tables))
    return found


def _branches(node: Node) -> list[Node]:
    return list(node["children"]) if "children" in node else [node["left"], node["right"]]


def _united(branches: Sequence[Relation], kind: str) -> Relation:
    """Return the columns of a set operation, matched by name for UNION BY NAME, else by position."""
    found: Relation = dict(branches[0])
    for branch in branches[1:]:
        named = zip(branch, branch, strict=True) if "BY_NAME" in kind else zip(found, branch, strict=False)
        for name, other in list(named):
            found[name] = found.get(name, frozenset()) | branch[other]
    return found


def _sources(table: Node, tables: Mapping[str, Relation]) -> Iterator[tuple[str, Relation]]:
    """Yield the tables of a FROM: the name of each within the query, and its columns."""
    kind = table.get("type")
    if kind == "JOIN":
        yield from _sources(table["left"], tables)
        yield from _sources(table["right"], tables)
    elif kind == "BASE_TABLE":
        yield table.get("alias") or table["table_name"], tables.get(table["table_name"], {})
    elif kind == "SUBQUERY":
        yield table.get("alias") or "", _of_node(table["subquery"]["node"], tables)


def _star(expression: Node, sources: Mapping[str, Relation]) -> Relation:
    left_out = {str(each if isinstance(each, str) else each.get("column", "")) for each in _excluded(expression)}
    of = expression.get("relation_name")
    chosen = [relation for name, relation in sources.items() if of in ("", None, name)]
    return {name: drawn for relation in chosen for name, drawn in relation.items() if name not in left_out}


def _excluded(expression: Node) -> Sequence[Any]:
    return [*(expression.get("exclude_list") or ()), *(expression.get("qualified_exclude_list") or ())]


def _name(expression: Node) -> str:
    return str(expression["alias"] or (expression.get("column_names") or [""])[-1])


def _drawn(expression: Any, sources: Mapping[str, Relation], tables: Mapping[str, Relation]) -> Iterator[Column]:
    """Yield the published columns that an expression names at any depth."""
    if isinstance(expression, list):
        for each in expression:
            yield from _drawn(each, sources, tables)
    elif isinstance(expression, dict):
        if expression.get("class") == "COLUMN_REF":
            yield from _referred(expression["column_names"], sources)
        elif expression.get("class") == "SUBQUERY":
            for drawn in _of_node(expression["subquery"]["node"], tables).values():
                yield from drawn
        else:
            for each in expression.values():
                yield from _drawn(each, sources, tables)


def _referred(names: Sequence[str], sources: Mapping[str, Relation]) -> Iterator[Column]:
    """Yield the published columns of a column reference: of the source that it names, else of every source with it."""
    if len(names) > 1 and names[0] in sources:
        yield from sources[names[0]].get(names[1], ())
        return
    for relation in sources.values():
        yield from relation.get(names[0], ())
