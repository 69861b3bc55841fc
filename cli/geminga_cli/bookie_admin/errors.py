"""Why a command of ``bookie-admin`` cannot be carried out. All end it with the exit code 2.

::

    GemingaError
    └── BookieAdminError
        ├── NoCluster        no standalone runs on the data directory
        ├── NotInitialized   ZooKeeper answers, and has no cluster there
        ├── UnknownBookie    no bookie of this id is registered
        ├── NoCookie         ZooKeeper has no cookie of a bookie of this id
        ├── StillRegistered  the bookie to be recovered or forgotten is running
        ├── BookieNeeded     ledgers are on the bookie to be forgotten
        ├── NotConfirmed     what cannot be undone needs --yes
        ├── NotRestored      the cookie cannot be written into a directory
        ├── HttpUnknown      the bookie has registered no HTTP address
        ├── OrderRefused     the bookie refused the command, or did not answer
        ├── CrossedRange     the first wanted entry comes after the last one
        └── UnreadableFile   the file is missing, or is no file of a bookie
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from geminga_cli.display.text import count_words
from geminga_protocol.records.ledgers.ledger_metadata import INSTANCE_ID_PATH
from geminga_runtime.errors import GemingaError

# A message names at most this many ledgers. More would not be read; ``list-ledgers --bookie`` has
# all.
LEDGERS_NAMED_MAX = 10


class BookieAdminError(GemingaError):
    """The command cannot be carried out like this."""

    # One code for all: programs look at the exit code, people at the words.
    code = "BookieAdminError"


class NoCluster(BookieAdminError):
    """The address of ZooKeeper is unknown."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"no cluster runs on {directory}: it has no endpoints.json that names a ZooKeeper. "
            "Give the --data-dir of a running standalone, or --zookeeper HOST:PORT"
        )
        self.directory = directory


class NotInitialized(BookieAdminError):
    """No bookie was ever registered below this address and path."""

    def __init__(self, hosts: str) -> None:
        super().__init__(
            f"no cluster is at {hosts}: ZooKeeper answers and has no {INSTANCE_ID_PATH} there. "
            "Check that the path behind HOST:PORT is the cluster's"
        )
        self.hosts = hosts


class UnknownBookie(BookieAdminError):
    """No such bookie is registered."""

    def __init__(self, bookie_id: str, known: Iterable[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"no bookie {bookie_id} is registered; there are: {names}")
        self.bookie_id = bookie_id


class NoCookie(BookieAdminError):
    """ZooKeeper has no cookie of such a bookie."""

    def __init__(self, bookie_id: str, known: Iterable[str]) -> None:
        names = ", ".join(known) or "none"
        super().__init__(
            f"ZooKeeper has no cookie of a bookie {bookie_id}; it has those of: {names}"
        )
        self.bookie_id = bookie_id


class StillRegistered(BookieAdminError):
    """The bookie to be recovered or forgotten is running."""

    def __init__(self, bookie_id: str, way_out: str) -> None:
        super().__init__(f"bookie {bookie_id} is running: {way_out}")
        self.bookie_id = bookie_id


class BookieNeeded(BookieAdminError):
    """Ledgers are on the bookie: it must not be forgotten before they are moved."""

    def __init__(self, bookie_id: str, ledger_ids: Sequence[int]) -> None:
        named = ", ".join(map(str, ledger_ids[:LEDGERS_NAMED_MAX]))
        more = " and more" if len(ledger_ids) > LEDGERS_NAMED_MAX else ""
        super().__init__(
            f"{count_words(len(ledger_ids), 'ledger')} on bookie {bookie_id}: {named}{more}. "
            f"`geminga bookie-admin decommission {bookie_id}` moves them, and then deletes the "
            "cookie"
        )
        self.bookie_id = bookie_id
        self.ledger_ids = tuple(ledger_ids)


class NotConfirmed(BookieAdminError):
    """Nothing was done, because it cannot be undone."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. Say --yes to do it")


class NotRestored(BookieAdminError):
    """No cookie was written: the directory is missing, or has one."""

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(f"{directory} {why}. Nothing was written")
        self.directory = directory


class HttpUnknown(BookieAdminError):
    """The bookie has registered no HTTP address."""

    def __init__(self, bookie_id: str) -> None:
        super().__init__(
            f"bookie {bookie_id} does not say where its HTTP is: give it with --http HOST:PORT"
        )
        self.bookie_id = bookie_id


class OrderRefused(BookieAdminError):
    """The bookie answered with an error, or not at all."""

    def __init__(self, bookie_id: str, why: str) -> None:
        super().__init__(f"the command to bookie {bookie_id} failed: {why}")
        self.bookie_id = bookie_id


class CrossedRange(BookieAdminError):
    """The range of entries ends before it begins."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(
            f"--first {first} comes after --last {last}: give the smaller number as --first"
        )
        self.first = first
        self.last = last


class UnreadableFile(BookieAdminError):
    """A file or directory that is missing, or is none of a bookie's."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} cannot be read: {why}")
        self.path = path
