"""Several journals that look like one: each ledger has its own, by its id, as upstream's bookies.

Only for bookies that are given several journal directories; one with a single journal knows nothing
of this. What arrives together is taken apart by ledger, goes to the journals at once, and is
answered together, in the order in which it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import groupby
from struct import Struct
from typing import Protocol

from geminga_bookie.disks.directories import Directories, Directory
from geminga_bookie.errors import CorruptFile, JournalsChanged
from geminga_bookie.journal.journal import Group, Journal

# Which of several journals a directory holds: a decimal number and a newline.
NUMBER_FILE_NAME = "JOURNAL_NUMBER"

# The beginning of a V2 request to add: its size without these 4 bytes, header word, master key,
# ledger id.
_ADD = Struct(">I24xq")
_SIZE_BYTES = 4


class JournalWriter(Protocol):
    """Where sessions have adds recorded: a journal, or several."""

    @property
    def forming(self) -> Group:
        """The group that the next write takes, for waiters to be put on."""
        ...

    @property
    def error(self) -> OSError | None:
        """Why nothing is taken any more."""
        ...

    def append_adds(self, requests: bytes | memoryview, count: int) -> None:
        """Add ``count`` V2 requests to add, as they came, each with its size."""
        ...

    def append_fence(self, ledger_id: int, master_key: bytes) -> None:
        """Add that the ledger is fenced."""
        ...

    def append_explicit_lac(self, ledger_id: int, master_key: bytes, body: bytes) -> None:
        """Add what the ledger's writer said about its last-add-confirmed."""
        ...


class _SharedGroup(Group):
    """What arrived together: a part in the group that forms in each of some journals.

    ``outstanding`` parts are not known to be durable yet; ``is_written`` while none failed.
    """

    __slots__ = ("is_written", "outstanding", "parts")

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[int, Group] = {}
        self.outstanding = 0
        self.is_written = True


class SpreadJournals:
    """A ``JournalWriter`` over several; ledger ``n`` has journal ``n % len(journals)``."""

    def __init__(self, journals: Sequence[Journal]) -> None:
        self._journals = journals
        # Oldest first; the last one is the one that forms.
        self._groups: deque[_SharedGroup] = deque([_SharedGroup()])

    @property
    def forming(self) -> Group:
        """The group that takes what comes now: until a journal begins to write its part."""
        return self._forming()

    @property
    def error(self) -> OSError | None:
        """Why one of the journals takes nothing any more."""
        return next((journal.error for journal in self._journals if journal.error), None)

    def append_adds(self, requests: bytes | memoryview, count: int) -> None:
        """Add V2 requests to add, run by run to the journals of their ledgers."""
        bounds = list(_bounds(requests, count, len(self._journals)))
        view = memoryview(requests)
        for number, run in groupby(bounds, key=lambda bound: bound[0]):
            frames = list(run)
            start, end = frames[0][1], frames[-1][2]
            self._part(number).append_adds(view[start:end], len(frames))

    def append_fence(self, ledger_id: int, master_key: bytes) -> None:
        """Add that the ledger is fenced."""
        self._part(ledger_id % len(self._journals)).append_fence(ledger_id, master_key)

    def append_explicit_lac(self, ledger_id: int, master_key: bytes, body: bytes) -> None:
        """Add what the ledger's writer said about its last-add-confirmed."""
        journal = self._part(ledger_id % len(self._journals))
        journal.append_explicit_lac(ledger_id, master_key, body)

    def _forming(self) -> _SharedGroup:
        group = self._groups[-1]
        for number, part in group.parts.items():
            if self._journals[number].forming is not part:
                group = _SharedGroup()
                self._groups.append(group)
                break
        return group

    def _part(self, number: int) -> Journal:
        """Journal ``number``, whose forming group belongs to the shared one from now on."""
        group = self._forming()
        journal = self._journals[number]
        if number not in group.parts:
            group.parts[number] = journal.forming
            group.outstanding += 1
            journal.forming.waiters.append((self._part_done, group))
        return journal

    def _part_done(self, group: _SharedGroup, is_written: bool) -> None:  # noqa: FBT001 a Waiter
        group.outstanding -= 1
        group.is_written = group.is_written and is_written
        groups = self._groups
        self._forming()  # this group takes nothing more, whoever asks
        while len(groups) > 1 and not groups[0].outstanding:
            done = groups[0]
            while done.waiters:  # off the list first: a mistake in one leaves the others
                waiter, argument = done.waiters.pop(0)
                waiter(argument, done.is_written)
            groups.popleft()


def _bounds(
    requests: bytes | memoryview, count: int, journal_count: int
) -> list[tuple[int, int, int]]:
    """Of each request: the number of its journal, where it starts and ends."""
    bounds: list[tuple[int, int, int]] = []
    start = 0
    for _ in range(count):
        size, ledger_id = _ADD.unpack_from(requests, start)
        end = start + _SIZE_BYTES + size
        bounds.append((ledger_id % journal_count, start, end))
        start = end
    return bounds


async def ordered_directories(directories: Directories) -> list[Directory]:
    """Journal directories by the number of the journal they hold, written there at first.

    So they may be named in another order, and a journal never gets another one's place to be
    replayed from. Raises ``JournalsChanged``, ``CorruptFile``, ``OSError``.
    """
    if len(directories) == 1:
        return list(directories)
    numbers = {directory: await _number_in(directory) for directory in directories}
    free = [number for number in range(len(directories)) if number not in numbers.values()]
    for directory, number in numbers.items():
        if number is None and free:
            numbers[directory] = new_number = free.pop(0)
            await directory.disk.write_file(NUMBER_FILE_NAME, b"%d\n" % new_number)
    ordered = sorted(directories, key=lambda directory: numbers[directory] or 0)
    found = [numbers[directory] for directory in ordered]
    if found != list(range(len(directories))):
        raise JournalsChanged({each.path: numbers[each] for each in directories})
    return ordered


async def _number_in(directory: Directory) -> int | None:
    content = await directory.disk.read_file(NUMBER_FILE_NAME)
    if content is None:
        return None
    digits = content.removesuffix(b"\n")
    if not digits.isdigit():
        path = f"{directory.path}/{NUMBER_FILE_NAME}"
        raise CorruptFile(path, 0, "it does not hold a number")
    return int(digits)
