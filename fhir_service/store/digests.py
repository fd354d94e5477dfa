"""The digests of a store's identifiers, in memory: most identifiers that an import asks for are not there.

They are for a process that alone writes to the store. A deleted identifier stays here; "perhaps" is decided by the
table.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.int64]


class Digests:
    """A set of 64-bit numbers, 8 bytes each: sorted runs; runs of similar size are joined."""

    def __init__(self, stored: ArrayLike) -> None:
        self._runs: list[Numbers] = [np.sort(np.asarray(stored, dtype=np.int64))]

    def add(self, numbers: Sequence[int]) -> None:
        """Add numbers; those of a transaction that is rolled back do no harm."""
        run = np.sort(np.array(numbers, dtype=np.int64))
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            # Stable: two sorted runs are merged, not sorted anew.
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)

    def among(self, numbers: Sequence[int]) -> list[int]:
        """Those of some numbers that may be stored."""
        wanted = np.array(numbers, dtype=np.int64)
        held = np.zeros(len(wanted), dtype=bool)
        for run in self._runs:
            places = np.searchsorted(run, wanted)
            held |= run.take(places, mode="clip") == wanted if len(run) else False
        found: list[int] = wanted[held].tolist()
        return found
