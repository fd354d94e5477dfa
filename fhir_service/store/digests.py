"""The digests of a store's identifiers, held in memory.

Most identifiers that an import asks for are new: without a digest here, the table need not be asked. A digest here
means "perhaps", and the table decides; a deleted identifier keeps its digest. Only for a process that is the one writer
of its store.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.int64]


class Digests:
    """A set of 64-bit numbers in sorted runs, 8 bytes each. Runs of similar size are merged."""

    def __init__(self, stored: ArrayLike) -> None:
        self._runs: list[Numbers] = [np.sort(np.asarray(stored, dtype=np.int64))]

    def add(self, numbers: Sequence[int]) -> None:
        """Add numbers. Those of a transaction that is rolled back do no harm."""
        run = np.sort(np.array(numbers, dtype=np.int64))
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            # The stable sort merges two sorted runs in linear time.
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)

    def among(self, numbers: Sequence[int]) -> list[int]:
        """Return the numbers that the set holds."""
        wanted = np.array(numbers, dtype=np.int64)
        held = np.zeros(len(wanted), dtype=bool)
        for run in self._runs:
            places = np.searchsorted(run, wanted)
            held |= run.take(places, mode="clip") == wanted if len(run) else False
        found: list[int] = wanted[held].tolist()
        return found
