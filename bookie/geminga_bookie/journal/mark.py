"""A place in a journal: what lies before it is in the entry logs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JournalMark:
    """Everything in the journal before ``offset`` of file ``file_number`` is in the entry logs.

    ``next_group`` is the number of the group that begins there.
    """

    file_number: int
    offset: int
    next_group: int


# Where nothing is known: the journal must be replayed from the first file that there is.
JOURNAL_BEGINNING = JournalMark(0, 0, 0)
