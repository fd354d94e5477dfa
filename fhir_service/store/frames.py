"""A file of numbered frames, each of which is on the disk when `put` returns. It is written from its beginning again
and again.

A frame is its size, its number, a keyed hash and its content. A frame that was not written whole ends the file, and so
does one whose number does not follow: it is left over from an earlier round.
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
"""Bytes that the file has from the beginning: what is written over takes one flush, what a file gains takes two."""


class Frame(NamedTuple):
    """A number, and the content that was put under it."""

    number: int
    content: bytes


class Frames:
    """The file. Not for several threads. key: of the hashes, so that no other writer's file is taken for this one."""

    def __init__(self, path: Path, key: bytes) -> None:
        self.path = path
        self._key = key
        self._file = -1
        self._end = 0

    def read(self) -> Iterator[Frame]:
        """Yield the frames of the file in order: those since it was last cleared, as far as they are whole."""
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
        """Add a frame. Raises OSError; whether `read` yields the frame then is not known."""
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
        """Begin the file anew: who put its frames has them elsewhere. Raises OSError."""
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
        """Make the file, with its room, so that a crash leaves its name too."""
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
