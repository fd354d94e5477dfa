"""`chartferry` without publishing: `python -m tests.support.unpublished WORDS`.

For tests of what a separate process sends and records. Publishing takes a second or two.
"""

from importlib import import_module

from pipelines.cli import main

MODULES = (
    "retry",
    "undoing",
    "begin_and_end",
)  # last the one that they import it from, when they are first imported
"""The modules of `pipelines.importing` that publish."""


def publish_nothing() -> None:
    """Let imports, retries and undos of this process publish nothing."""
    for name in MODULES:
        import_module(f"pipelines.importing.{name}").publish_into = lambda *_: None  # type: ignore[attr-defined]


if __name__ == "__main__":
    publish_nothing()
    main()
