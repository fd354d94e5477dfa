"""Fixtures of the laws that run commands: those of the tests of `chartferry`."""

from tests.pipelines.conftest import asked, chartferry, home, target

__all__ = ["asked", "chartferry", "home", "target"]
