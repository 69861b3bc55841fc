"""What a simulated disk holds of one file, and what a loss of power leaves of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

SECTOR_BYTES = 512
# At most so many reserved zeros are found behind a file's end. Real files have megabytes of them;
# readers stop at the first, so few show the same.
RESERVED_FOUND_BYTES_MAX = 4096


@dataclass(slots=True, eq=False)
class StoredFile:
    """The bytes of one file. All chance comes from the disk's random source, in a fixed order."""

    # As processes see it, and how many bytes of it survive a loss of power.
    content: bytearray = field(default_factory=bytearray)
    synced_size: int = 0
    # Ranges whose sync failed, as (start, end). The system marks their pages clean and never writes
    # them again: after a loss of power they hold something else, synced since or not. Cleared by a
    # loss of power, which spoils them, and cut by ``truncate``.
    doomed: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    # Space is reserved behind ``content``.
    is_reserved: bool = False

    def lose_power(self, random: Random, torn_probability: float) -> None:
        """Unsynced bytes survive as chance has it; what is left is on the device from now on."""
        content = self.content
        # Before the tail is cut: a doomed range may lie in it, or before it.
        for start, end in self.doomed:
            self.spoil(random, start, end)
        self.doomed.clear()
        tail_bytes = len(content) - self.synced_size
        if tail_bytes > 0:
            # Of the unsynced tail a quarter of the files keep nothing, half keep a beginning, a
            # quarter all.
            fate = random.random()
            if fate < 0.25:
                del content[self.synced_size :]
            elif fate < 0.75:
                del content[self.synced_size + random.randrange(tail_bytes + 1) :]
            # Sectors reach the device in any order: some of those that are left did not.
            if random.random() < torn_probability:
                start = self.synced_size
                while start < len(content):
                    # From the end of what was synced to the next border of a sector, then sector by
                    # sector.
                    end = (start // SECTOR_BYTES + 1) * SECTOR_BYTES
                    if random.random() < 0.5:
                        self.spoil(random, start, end)
                    start = end
        # The reservation itself was durable or not.
        if random.random() < 0.5:
            self.show_reserved(random)
        self.is_reserved = False
        # What survived one loss of power survives the next one.
        self.synced_size = len(content)

    def spoil(self, random: Random, start: int, end: int) -> None:
        """Put what the device held before in the place of bytes: mostly zeros, else garbage."""
        size = min(end, len(self.content)) - start
        if size > 0:
            is_zero = random.random() < 0.7
            self.content[start : start + size] = bytes(size) if is_zero else random.randbytes(size)

    def show_reserved(self, random: Random) -> int:
        """Let zeros stand where space was reserved: the process that had the file open is gone.

        Returns by how many bytes the file has grown.
        """
        if not self.is_reserved:
            return 0
        size = 1 + random.randrange(RESERVED_FOUND_BYTES_MAX)
        self.content += bytes(size)
        self.is_reserved = False
        return size
