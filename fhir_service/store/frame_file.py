"""A file of numbered frames. A frame is on the disk when `put` returns. `clear` starts the file over.

A frame is its size, its number, a keyed hash and its content. Reading ends at an incomplete frame, and at one whose
number is not the next one: it is left over from before a `clear`.
"""

import os
import struct
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct("<IQ16s")
_NONE = bytes(_HEAD.size)
ROOM = 1 << 20
"""The initial bytes of the file. Overwriting takes one flush of the disk; a file that grows takes two."""


class Frame(NamedTuple):
    """A number and its content."""

    number: int
    content: bytes


class Frames:
    """The file, for one thread. key: the key of the hashes; a file of another store does not match it."""

    def __init__(self, path: Path, key: bytes) -> None:
        self.path = path
        self._key = key
        self._file = -1
        self._end = 0

    def read(self) -> Iterator[Frame]:
        """Yield the frames since the last `clear`, in order, up to an incomplete one."""
        try:
            stored = self.path.read_bytes()
        except FileNotFoundError:
            return
        start, last = 0, -1
        while start + _HEAD.size <= len(stored):
            size, number, digest = _HEAD.unpack_from(stored, start)
            start += _HEAD.size
            content = stored[start : start + size]
            if len(content) < size or digest != self._hash(number, content) or last not in (-1, number - 1):
                return
            yield Frame(number, content)
            start, last = start + size, number

    def put(self, number: int, content: bytes) -> None:
        """Add a frame. After an OSError the file may have it or not."""
        if self._file < 0:
            self._open()
        frame = _HEAD.pack(len(content), number, self._hash(number, content)) + content
        view = memoryview(frame)
        at = self._end
        while view:
            written = os.pwrite(self._file, view, at)
            view, at = view[written:], at + written
        os.fdatasync(self._file)
        self._end = at

    def clear(self) -> None:
        """Start the file over. Call it when all its frames are stored elsewhere. Raises OSError."""
        self._end = 0
        if self._file >= 0:
            os.pwrite(self._file, _NONE, 0)

    def remove(self) -> None:
        """Close the file and remove it."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        """Make the file in its initial size, and flush its folder: the name must survive a crash."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.pwrite(file, bytes(ROOM), 0)
            os.fsync(file)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except BaseException:
            os.close(file)
            raise
        self._file, self._end = file, 0

    def _hash(self, number: int, content: bytes) -> bytes:
        return blake2b(content, digest_size=16, key=self._key, salt=number.to_bytes(8, "little")).digest()
