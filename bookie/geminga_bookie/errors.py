"""What can be wrong with a bookie itself: its files, its identity, its cluster.

GemingaError
└── BookieError
    ├── CorruptFile           bytes on disk are not what was written
    │   └── DamagedBlock      the same of a block of entries, some of which can still be read
    ├── UnknownFormat         a file of a version (or kind) that this program does not read
    ├── JournalFileMissing    the journal file to replay from is gone
    ├── JournalsChanged       the journal directories do not hold each journal once
    ├── DirectoriesChanged    there are more or fewer directories than the bookie was made with
    ├── EntryLogMissing       an entry log is gone, and the index knows what was in it
    ├── EntryLogTwice         two directories have an entry log of one number
    ├── EntriesLost           the index is gone, and with it some of the entry logs
    ├── CookieMismatch        this directory belongs to another bookie or cluster
    ├── CookieMissing         a directory is empty where the cluster knows this bookie
    ├── DataWithoutCookie     a directory holds a bookie's files, and nothing says which bookie's
    ├── DirectoriesClash      one directory is named for two things that it cannot hold both
    ├── LogRemoved            a read came too late: its entry log was compacted meanwhile
    └── ClusterNotInitialized ZooKeeper holds no ``/ledgers`` tree

``BadBookieId`` (``disks.identity``) and ``IndexNotOpened`` (``index.rocks_store``) are such errors
too, and stand where they are raised. What a bookie refuses to a client stands in
``geminga_protocol.bookkeeper.errors``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent

from geminga_runtime.errors import GemingaError

# So many are named in a message, which people read on a screen or in a log.
_LEDGERS_NAMED_MAX = 20
_FILES_NAMED_MAX = 5
# What an operator can do about a bookie that has lost some of its entries, and knows it.
_WAYS_OUT = (
    "Where every ledger has other replicas, move this bookie's data directory away and start "
    "it empty, under another id: auto-recovery fills it. Where there are none, and the data is "
    "gone for good, start it once with --accept-lost-entries: it then says that it never had it."
)


class BookieError(GemingaError):
    """The bookie cannot start or go on as it is."""

    code = "BookieError"


# Files. Each message says what may be lost and what an operator can do: the bookie does not start,
# because a bookie that starts without some of its entries denies them to readers.


class CorruptFile(BookieError):
    """Bytes at ``offset`` of ``path`` are not what was written, and no crash explains it."""

    def __init__(self, path: str, offset: int, what: str) -> None:
        super().__init__(
            f"{path} is damaged at byte {offset}: {what}. Entries that were acknowledged may be in "
            "it, so the bookie does not start. Restore the file from a copy; or, where every "
            "ledger has other replicas, move this bookie's whole data directory away, and start it "
            "empty, under another id: auto-recovery fills it again."
        )
        self.path = path
        self.offset = offset


class UnknownFormat(BookieError):
    """A file says that it was written in a layout that this program does not know."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"{path} cannot be read: {what}. Use the version of Geminga that wrote it, "
            "or take a file that is not the bookie's out of its directory."
        )
        self.path = path


class JournalFileMissing(BookieError):
    """The index says that the journal must be replayed from a file that is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the journal file {path} is missing, and entries that were acknowledged may be in it. "
            "Put it back, or check that the journal directory is the one this bookie always had."
        )
        self.path = path


class JournalsChanged(BookieError):
    """The journal directories do not hold each journal once."""

    def __init__(self, found: dict[str, int | None]) -> None:
        held = ", ".join(f"{path} holds journal {number}" for path, number in found.items())
        super().__init__(
            f"the journal directories do not belong together: {held}. Give the bookie the journal "
            "directories that it always had, each once."
        )
        self.found = found


class DirectoriesChanged(BookieError):
    """The settings name more or fewer directories than the bookie was made with."""

    def __init__(self, kind: str, found: tuple[str, ...], known: tuple[str, ...]) -> None:
        super().__init__(
            f"the settings name {len(found)} {kind} directories ({', '.join(found)}), and the "
            f"bookie's cookie {len(known)} ({', '.join(known)}). Name as many as it was made with: "
            "entries that were acknowledged are in each. To have more, start another bookie with "
            "them, or decommission this one and start it empty."
        )
        self.found = found
        self.known = known


class EntryLogMissing(BookieError):
    """The index says that entries are in an entry log that is in no ledger directory."""

    def __init__(self, path: str, directories: tuple[str, ...]) -> None:
        super().__init__(
            f"the entry log {path} is missing from {' and '.join(directories)}, and entries that "
            "were acknowledged are in it. Put it back, or check that all ledger directories are "
            f"mounted. {_WAYS_OUT}"
        )
        self.path = path


class EntriesLost(BookieError):
    """The index was lost, and with it something of the entry logs from which it is made again."""

    def __init__(self, losses: Sequence[str], ledger_ids: Sequence[int]) -> None:
        named = ", ".join(map(str, ledger_ids[:_LEDGERS_NAMED_MAX]))
        ledgers = (
            f"Of {len(ledger_ids)} ledgers it is known that they lack entries ({named}"
            f"{', ...' if len(ledger_ids) > _LEDGERS_NAMED_MAX else ''})"
            if ledger_ids
            else "Which ledgers lack entries is not known"
        )
        super().__init__(
            f"entries that were acknowledged are lost: {'; '.join(losses)}. {ledgers}, and the "
            "index that knew all of them is lost too. Restore the files from a copy. "
            f"{_WAYS_OUT}"
        )
        self.losses = tuple(losses)
        self.ledger_ids = tuple(ledger_ids)


class EntryLogTwice(BookieError):
    """Two ledger directories have an entry log of the same number."""

    def __init__(self, name: str, one: str, other: str) -> None:
        super().__init__(
            f"the entry log {name} is in {one} and in {other}: one is a copy, or of another "
            "bookie. Take that one out of its directory."
        )
        self.name = name


# Identity. A bookie that starts on other directories than its own would do the same.


class CookieMismatch(BookieError):
    """Two cookies that must be the same are not."""

    def __init__(self, where: str, found: str, expected_where: str, expected: str) -> None:
        super().__init__(
            f"the cookie of {where} is not that of {expected_where}.\n"
            f"{where}:\n{_indented(found)}\n{expected_where}:\n{_indented(expected)}\n"
            "Start the bookie with the directories and the ZooKeeper that belong together; or, to "
            "make this an empty bookie of this cluster, move its data directory away."
        )
        self.found = found
        self.expected = expected


class CookieMissing(BookieError):
    """The cluster knows this bookie, and a directory of it holds nothing that says so."""

    def __init__(self, where: str, expected_where: str, expected: str) -> None:
        super().__init__(
            f"{where} has no cookie, but {expected_where} has one for this bookie:\n"
            f"{_indented(expected)}\n"
            "Entries that were acknowledged may be on another disk: check that it is mounted and "
            "that the directory is right. If only the VERSION file is lost, `geminga bookie-admin "
            "restore-cookie BOOKIE --directory DIRECTORY` writes it again. If the data is gone, "
            "start an empty bookie under another id, and `geminga bookie-admin decommission "
            "BOOKIE` has the lost copies made again and forgets the old one."
        )
        self.expected = expected


class DataWithoutCookie(BookieError):
    """Directories hold a bookie's files, and no cookie that says which bookie wrote them.

    Under a new id, readers would not find what is in them, and garbage collection would delete it.
    """

    def __init__(self, found: Mapping[str, Sequence[str]]) -> None:
        holdings: list[str] = []
        for where, names in found.items():
            named = ", ".join(names[:_FILES_NAMED_MAX])
            if len(names) > _FILES_NAMED_MAX:
                named = f"{named}, ... ({len(names)} files)"
            holdings.append(f"{where} holds {named}")
        held = "; ".join(holdings)
        super().__init__(
            f"a bookie's data is there, but not the VERSION file that says which bookie's: {held}. "
            "Entries that were acknowledged may be in it, and the cluster knows them under that "
            "bookie's id, so this is not taken for a new bookie. Put the VERSION file back into "
            "each journal and ledger directory: `geminga bookie-admin cookie` lists the bookies "
            "that the cluster knows with their directories, and `geminga bookie-admin "
            "restore-cookie BOOKIE --directory DIRECTORY` writes the file. To have a new bookie "
            "instead, give it empty directories (the index below data_directory included)."
        )
        self.found = {where: tuple(names) for where, names in found.items()}


class DirectoriesClash(BookieError):
    """The settings name one directory for two things that it cannot hold both."""

    def __init__(self, kind: str, path: Path, how: str) -> None:
        super().__init__(
            f"the {kind} directory {path} {how}: their files would mix, and the bookie could not "
            "start again. Name each directory once (links and relative paths are followed), best "
            "each on a disk of its own."
        )
        self.path = path


# Reads. These stop no bookie.


class DamagedBlock(CorruptFile):
    """A block of entries is not what was written.

    ``entries`` are those that can still be read in it, of the ``count`` that it had; ``held`` says
    in words which those were. Whether another entry that the block spans was in it, cannot be told.
    """

    def __init__(
        self, path: str, offset: int, held: str, count: int, entries: dict[int, bytes]
    ) -> None:
        # Not ``CorruptFile``'s words, which speak of a bookie that does not start.
        BookieError.__init__(
            self,
            f"{path} is damaged in the block at byte {offset}, which holds {count} entries {held}: "
            f"{count - len(entries)} of them cannot be told apart any more. Where the ledger "
            "has other replicas, they are read and auto-recovery copies them back.",
        )
        self.path = path
        self.offset = offset
        self.what = "a block is not what was written"
        self.entries = entries


class LogRemoved(BookieError):
    """An entry log was removed after the index had named a block in it: ask the index again."""

    retry = True

    def __init__(self, file_name: str) -> None:
        super().__init__(f"entry log {file_name} was removed meanwhile")


# The cluster.


class ClusterNotInitialized(BookieError):
    """ZooKeeper has no ledgers tree: no cluster was initialised there yet."""

    retry = True

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} does not exist in ZooKeeper: no cluster was initialised there. "
            "Run `geminga initialize-cluster-metadata` once, then start the bookie again."
        )
        self.path = path


def _indented(cookie: str) -> str:
    return indent(cookie.rstrip(), "    ")
