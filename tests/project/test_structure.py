"""The structure of the code: no module leans on many others, and no object keeps much that changes."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 12


@cache
def modules() -> dict[str, ast.Module]:
    """The modules of both packages, by name."""
    paths = [path for package in ("fhir_service", "pipelines") for path in (ROOT / package).rglob("*.py")]
    named = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    gc.disable()  # all of it stays: to look for what can be freed takes longer than to parse
    try:
        return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in named.items()}
    finally:
        gc.enable()


@cache
def names() -> frozenset[str]:
    return frozenset(modules())


def statements(of: ast.AST) -> Iterator[ast.stmt]:
    """The statements in a module or a function, inner ones too; expressions, which are most of a tree, have none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(of, name, ()):
            if isinstance(each, ast.stmt):
                yield each
            yield from statements(each)


def imports_of(module: ast.Module) -> set[str]:
    """The modules of ours that a module imports, at its top or where they are used."""
    found = set[str]()
    for node in statements(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & names() or {node.module}
    return found & names()


def test_no_module_imports_more_than_twelve_others_of_ours():
    """Beside `paths`, which stands for a part of `pathlib`."""
    few = {"fhir_service.paths"}
    more = {name for name, module in modules().items() if len(imports_of(module) - few - {name}) > MOST}
    assert not more, "divide these modules"


def own_attributes(of: ast.ClassDef) -> set[str]:
    """Return the attributes that a class sets on itself, except those that its constructor only stores."""
    return {name for function in functions(of) for name in set_by(function)}


def functions(of: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (each for each in of.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def set_by(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    arguments = function.args
    given = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    kept = given if function.name == "__init__" else set[str]()
    for node in statements(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from set_in(target, node.value, kept)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            yield from set_in(node.target, node.value, kept)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                if item.optional_vars:
                    yield from set_in(item.optional_vars, None, kept)
        elif isinstance(node, ast.For):
            yield from set_in(node.target, None, kept)


def set_in(target: ast.expr, value: ast.expr | None, kept: set[str]) -> Iterator[str]:
    """The attributes of `self` that an assignment sets. kept: names whose value is only kept."""
    if isinstance(target, ast.Tuple | ast.List):
        values = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
        for place, part in enumerate(target.elts):
            yield from set_in(part, values[place] if values else None, kept)
    elif (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
        and not (isinstance(value, ast.Name) and value.id in kept)
    ):
        yield target.attr


@cache
def classes() -> dict[str, ast.ClassDef]:
    """The classes of both packages, by module and name."""
    return {
        f"{name}.{node.name}": node
        for name, module in modules().items()
        for node in statements(module)
        if isinstance(node, ast.ClassDef)
    }


def test_no_object_keeps_more_than_twelve_attributes_that_change():
    """Attributes that a class and the classes of ours that it is made of set. A dataclass is a record of its fields."""
    own = {name: own_attributes(node) for name, node in classes().items()}
    by_name = {name.rpartition(".")[2]: name for name in own}

    def of(name: str) -> set[str]:
        bases = [base.id for base in classes()[name].bases if isinstance(base, ast.Name)]
        return own[name].union(*(of(by_name[base]) for base in bases if base in by_name and by_name[base] != name))

    more = {name for name in own if len(of(name)) > MOST}
    assert not more, "divide these classes"


ASKING = ("client", "corrections", "importing", "loading", "reports", "session", "verifying")
"""The packages that ask a target."""
WAITED_FOR = {"client.threads", "loading.sending_loop", "loading.requests_under_way"}
"""A load waits for all that is under way, and writes down what came of it."""


OF_THIS_PROGRAM = {"sys.argv", "sys.excepthook", "sys.unraisablehook", "threading.excepthook"}


def test_no_module_changes_another():
    """What another module or class is like is decided where it stands."""
    changes = set[str]()
    for name, module in modules().items():
        imported = {
            alias.asname or alias.name.partition(".")[0]
            for node in statements(module)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        for node in statements(module):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            whats = {ast.unparse(each) for each in targets if isinstance(each, ast.Attribute)}
            changes |= {f"{name}: {what}" for what in whats - OF_THIS_PROGRAM if what.partition(".")[0] in imported}
    assert not changes


def test_no_module_takes_an_unreadable_path_for_an_absent_one():
    """`Path.exists` and its kin say no to any error since Python 3.14, and `Path.glob` passes over it since 3.13; the
    functions of `paths` raise it."""
    asked = {
        (name, ast.unparse(node))
        for name, module in modules().items()
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in {"glob", "rglob"}
        or (node.func.attr in {"exists", "is_dir", "is_file", "is_mount", "is_symlink"} and not node.args)
    }
    of_a_database = {each for each in asked if each[1].startswith(("select(", "~its_reject", "its_reject"))}
    assert asked - of_a_database == {
        ("pipelines.feeds.drafting.first_keys", "entry.is_file()"),  # of `os.scandir`: it raises
        ("pipelines.validation.program_hash", "Path(place).glob('*-info')"),  # as imports pass over such a folder
    }


def test_requests_are_made_in_threads_that_end_with_their_work():
    """Ctrl-C would wait for all attempts of other threads."""
    made = {
        name.removeprefix("pipelines.")
        for name, module in modules().items()
        if name.startswith(tuple(f"pipelines.{package}." for package in ASKING))
        for node in ast.walk(module)
        for used in (node.bases if isinstance(node, ast.ClassDef) else [getattr(node, "func", None)])
        if isinstance(used, ast.Name) and used.id == "ThreadPoolExecutor"
    }
    assert made == WAITED_FOR
