"""Tests replace names of the code: each is there, also where a test runs rarely."""

import ast
import pkgutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def replaced(source: str) -> Iterator[str]:
    """Yield the dotted names that a test module replaces: of what it imports by name, or said as one text."""
    nodes = list(ast.walk(ast.parse(source)))
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        match node:
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "object"), args=[ast.Name(of), ast.Constant(str(name)), *_]
            ):
                if of in imported and of not in arguments:
                    yield f"{imported[of]}.{name}"
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Constant(str(name)), *_]):
                yield name


def is_there(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


def test_each_name_that_a_test_replaces_is_there():
    for path in sorted((ROOT / "tests").rglob("*.py")):
        gone = [name for name in replaced(path.read_text(encoding="utf-8")) if not is_there(name)]
        assert not gone, path


def test_names_are_found_in_both_forms():
    source = """
from pipelines.home import counted
def test(monkeypatch, given):
    monkeypatch.setattr(counted, "word_for", None)
    patch.object(counted, "gone", None)
    monkeypatch.setattr("pipelines.nowhere.counted", None)
    monkeypatch.setattr(given, "own", None)
"""
    found = list(replaced(source))
    assert [(name, is_there(name)) for name in found] == [
        ("pipelines.home.counted.word_for", True),
        ("pipelines.home.counted.gone", False),
        ("pipelines.nowhere.counted", False),
    ]
