"""Several journals that look like one: a ledger's id says which of them it has, as upstream.

Only bookies with several journal directories use this; with one directory, sessions append to the
``Journal`` itself. Adds that arrive together are taken apart by ledger and go to their journals at
once. They are answered together, in the order in which they came, when all journals have made their
parts durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from struct import Struct

from geminga_bookie.disks.directories import Directories, Directory
from geminga_bookie.errors import CorruptFile, JournalsChanged
from geminga_bookie.formats.journal_v1 import Mark
from geminga_bookie.journal.journal import Group, Journal

# A file in each of several journal directories: the number of the journal in it, and a newline.
NUMBER_FILE_NAME = "JOURNAL_NUMBER"

# The beginning of a V2 request to add: its size without these 4 bytes, header word, master key,
# ledger id.
_ADD = Struct(">I24xq")
_SIZE_BYTES = 4


@dataclass(slots=True, eq=False)
class SharedGroup(Group):
    """What arrived together, as parts: one in the forming group of each journal concerned."""

    # By the journal's number: the group of that journal which holds our part.
    parts: dict[int, Group] = field(default_factory=dict)
    # Parts that are not known to be durable yet.
    outstanding: int = 0
    # False as soon as one part failed: the others may be durable, but none may be answered so.
    is_written: bool = True


@dataclass(eq=False, slots=True)
class SpreadJournals:
    """Looks like a ``Journal``; ledger ``n`` has journal ``n % len(journals)``.

    Journals finish their groups in any order, and a session must answer in the order of requests.
    So shared groups wait in a queue, and are answered only from its front.
    """

    _journals: Sequence[Journal]
    # Oldest first; the last one is the one that forms.
    _groups: deque[SharedGroup] = field(init=False, default_factory=lambda: deque([SharedGroup()]))

    @property
    def forming(self) -> SharedGroup:
        """The group that takes what comes now, until a journal begins to write its part of it."""
        group = self._groups[-1]
        # A journal replaces its forming group when it begins to write it. From then on nothing can
        # join our part of it, and what comes next needs a shared group of its own, or it would be
        # answered too early.
        for number, part in group.parts.items():
            if self._journals[number].forming is not part:
                group = SharedGroup()
                self._groups.append(group)
                break
        return group

    @property
    def error(self) -> OSError | None:
        """Why one of the journals takes nothing any more."""
        return next((journal.error for journal in self._journals if journal.error), None)

    def append_adds(self, requests: bytes | memoryview, count: int) -> None:
        """Append V2 requests to add, run by run, to the journals of their ledgers."""
        # Of each request: its journal, where it starts and ends.
        bounds: list[tuple[int, int, int]] = []
        start = 0
        for _ in range(count):
            size, ledger_id = _ADD.unpack_from(requests, start)
            end = start + _SIZE_BYTES + size
            bounds.append((ledger_id % len(self._journals), start, end))
            start = end
        view = memoryview(requests)
        # Neighbours of one journal stay one piece. The order of adds within a journal is that of
        # the socket; between journals there is none, and replay needs none: an add and a fence of
        # one ledger are in the same journal.
        for number, run in groupby(bounds, key=lambda bound: bound[0]):
            frames = list(run)
            start, end = frames[0][1], frames[-1][2]
            self._part(number).append_adds(view[start:end], len(frames))

    def append_mark(self, mark: Mark) -> None:
        """Append a fence or an explicit last-add-confirmed to the journal of its ledger."""
        self._part(mark.ledger_id % len(self._journals)).append_mark(mark)

    def _part(self, number: int) -> Journal:
        """Journal ``number``, whose forming group belongs to the shared one from now on."""
        group = self.forming
        journal = self._journals[number]
        if number not in group.parts:
            # Each journal gets one waiter for a shared group, with the first item that goes there.
            group.parts[number] = journal.forming
            group.outstanding += 1
            journal.forming.waiters.append((self._part_done, group))
        return journal

    def _part_done(self, group: SharedGroup, is_written: bool) -> None:  # noqa: FBT001 a Waiter
        # With 0, 2, 0 and 1 parts outstanding, the oldest group first: the first one is answered
        # now; the third one is durable, and waits for the second; the last one forms.
        group.outstanding -= 1
        group.is_written = group.is_written and is_written
        groups = self._groups
        # A group of which a part was written takes nothing more. Where it is still the last one,
        # nothing has come since.
        if group is groups[-1]:
            groups.append(SharedGroup())
        # The last group is never answered here: it is the one that ``forming`` gives out.
        while len(groups) > 1 and not groups[0].outstanding:
            done = groups[0]
            # Off the list first: where a waiter raises, the others are still called later.
            while done.waiters:
                waiter, argument = done.waiters.pop(0)
                waiter(argument, done.is_written)
            groups.popleft()


# What sessions append to. Both have ``forming``, ``error`` and the methods that append.
JournalWriter = Journal | SpreadJournals


async def ordered_directories(directories: Directories) -> list[Directory]:
    """Sort journal directories by the number of the journal they hold; number new ones.

    So the settings may name them in another order: a journal is never replayed from another one's
    mark. Raises ``JournalsChanged``, ``CorruptFile``, ``OSError``.
    """
    if len(directories) == 1:
        return list(directories)
    numbers: dict[Directory, int | None] = {}
    for directory in directories:
        content = await directory.disk.read_file(NUMBER_FILE_NAME)
        digits = b"" if content is None else content.removesuffix(b"\n")
        if content is not None and not digits.isdigit():
            path = f"{directory.path}/{NUMBER_FILE_NAME}"
            raise CorruptFile(path, 0, "it does not hold a number")
        numbers[directory] = int(digits) if digits else None
    # At the first start all are new and get their numbers in the order of the settings. A crash
    # between two of them leaves the others to the next start.
    free = [number for number in range(len(directories)) if number not in numbers.values()]
    for directory, number in numbers.items():
        if number is None and free:
            # The number is durable before anything is journalled there: without it, another
            # journal's mark could be taken for this one's.
            numbers[directory] = new_number = free.pop(0)
            await directory.disk.write_file(NUMBER_FILE_NAME, b"%d\n" % new_number)
    ordered = sorted(directories, key=lambda directory: numbers[directory] or 0)
    found = [numbers[directory] for directory in ordered]
    # Two with one number, or a number of a larger set, mean that a directory was replaced.
    if found != list(range(len(directories))):
        raise JournalsChanged({each.path: numbers[each] for each in directories})
    return ordered
