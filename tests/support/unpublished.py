"""`chartferry` whose commands publish no tables: `python -m tests.support.unpublished WORDS`.

For tests of what a process of its own sends and notes: all tables take it a second or two.
"""

from importlib import import_module

from pipelines.cli import main

MODULES = (
    "retry",
    "undoing",
    "begin_and_end",
)  # last the one that they import it from, when they are first imported
"""Those of `pipelines.importing` that publish."""


def publish_nothing() -> None:
    """Let imports, retries and undos of this process publish nothing."""
    for name in MODULES:
        import_module(f"pipelines.importing.{name}").publish_into = lambda *_: None  # type: ignore[attr-defined]


if __name__ == "__main__":
    publish_nothing()
    main()
