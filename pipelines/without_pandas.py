"""Keeps pandas out of a process: pyarrow loads it to see whether a list is one of its own, 46 MB and half the start."""

import sys
from importlib.abc import MetaPathFinder


def without_pandas() -> None:
    """To be called before pyarrow is used; nothing of ours uses pandas, and this is for processes of ours only."""
    sys.meta_path.insert(0, _NoPandas())


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
