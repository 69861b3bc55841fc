"""The trace of a simulation: what happened, when, where, as a running hash.

Two runs of one seed must give the same digest. Where they do not, two recordings
(``record=True``) laid side by side show the first event that differs. Nothing depends on the trace.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from zlib import crc32

from geminga_runtime.disk import Chunk

# Numbers are hashed in groups of this many: hashing each alone would cost more than the loop.
NUMBERS_PER_FOLD = 8192
# A recording is for reading; beyond this many lines its end is cut off (the hash goes on).
RECORDED_LINES_MAX = 1_000_000


class Trace:
    """Events as numbers, folded into one hash.

    ``append`` takes one number and is the bound method of an array: the loop calls it twice for
    each callback. ``note`` takes bytes, for contents that crossed a network or reached a disk.
    """

    __slots__ = ("_hash", "_numbers", "append", "lines")

    def __init__(self, *, record: bool = False) -> None:
        self._hash = blake2b(digest_size=16)
        # Events that are not hashed yet: times, numbers of incarnations, serials, checksums.
        # Doubles: times as they are, and integers exactly up to 2**53.
        self._numbers = array("d")
        self.append = self._numbers.append
        # The recording; None where nothing is recorded.
        self.lines: list[str] | None = [] if record else None

    def note(self, label: str, content: Chunk = b"") -> None:
        """Add an event that has a name, and the checksum of its bytes."""
        # The label seeds the checksum of the content, so one number tells both.
        self.append(crc32(content, crc32(label.encode())))
        if self.lines is not None:
            self.record(f"  {label} [{len(content)} bytes]")

    def record(self, line: str) -> None:
        """Keep a line for readers, if this trace is recorded."""
        if self.lines is not None and len(self.lines) < RECORDED_LINES_MAX:
            self.lines.append(line)

    def fold(self, numbers_min: int = NUMBERS_PER_FOLD) -> None:
        """Hash the gathered numbers if there are enough of them to make that cheap."""
        # ``append`` stays bound to this array, so the array is emptied and not replaced.
        if len(self._numbers) >= numbers_min:
            # In the machine's byte order: digests are compared on machines that have the same one.
            # alike.
            self._hash.update(self._numbers.tobytes())
            del self._numbers[:]

    def digest(self) -> str:
        """The hash of all events so far, 32 hexadecimal digits."""
        self.fold(0)
        return self._hash.copy().hexdigest()


def label_of(callback: object) -> str:
    """A name for a callback that is the same in every run: no address, no counter of Python's."""
    owner = getattr(callback, "__self__", None)
    task_name = getattr(owner, "get_name", None)
    if task_name is not None:
        return f"task {task_name()}"
    inner = getattr(callback, "func", callback)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))
