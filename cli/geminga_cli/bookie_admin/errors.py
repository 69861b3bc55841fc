"""Why a look into bookies cannot be had. All end the command with the exit code 2.

GemingaError
└── BookieAdminError
    ├── NoCluster        the data directory is of no standalone that runs
    ├── NotInitialized   ZooKeeper answers, and holds no cluster there
    ├── UnknownBookie    no bookie of that id is registered
    ├── NoCookie         ZooKeeper never heard of a bookie of that id, or forgot it
    ├── StillRegistered  the bookie to be recovered or forgotten runs
    ├── BookieNeeded     ledgers are on the bookie to be forgotten
    ├── NotConfirmed     what cannot be taken back needs a word more
    ├── NotRestored      a directory cannot get its cookie again
    ├── HttpUnknown      nobody says where the bookie's HTTP is
    ├── OrderRefused     the bookie did not obey
    ├── CrossedRange     the first entry wanted comes after the last one
    └── UnreadableFile   the file is none of a bookie's, or not there
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from geminga_cli.display.text import count_words
from geminga_protocol.records.ledger_metadata import INSTANCE_ID_PATH
from geminga_runtime.errors import GemingaError

# Ledgers that a message names, of however many it is about.
LEDGERS_NAMED_MAX = 10


class BookieAdminError(GemingaError):
    """It cannot be done like this."""

    code = "BookieAdminError"


class NoCluster(BookieAdminError):
    """Nothing says where ZooKeeper is."""

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
            "See that the path behind HOST:PORT is the cluster's"
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
    """The bookie to be recovered or forgotten is alive."""

    def __init__(self, bookie_id: str, way_out: str) -> None:
        super().__init__(f"bookie {bookie_id} is running: {way_out}")
        self.bookie_id = bookie_id


class BookieNeeded(BookieAdminError):
    """Ledgers name the bookie: it must not be forgotten before they are moved."""

    def __init__(self, bookie_id: str, ledger_ids: Sequence[int]) -> None:
        named = ", ".join(map(str, ledger_ids[:LEDGERS_NAMED_MAX]))
        more = " and more" if len(ledger_ids) > LEDGERS_NAMED_MAX else ""
        super().__init__(
            f"{count_words(len(ledger_ids), 'ledger')} on bookie {bookie_id}: {named}{more}. "
            f"`geminga bookie-admin decommission {bookie_id}` has them moved, and deletes the "
            "cookie then"
        )
        self.bookie_id = bookie_id
        self.ledger_ids = tuple(ledger_ids)


class NotConfirmed(BookieAdminError):
    """Nothing was done: this cannot be taken back."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. Say --yes to do it")


class NotRestored(BookieAdminError):
    """No cookie was written: the directory is not one that lost it."""

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(f"{directory} {why}. Nothing was written")
        self.directory = directory


class HttpUnknown(BookieAdminError):
    """The bookie's registration names no HTTP address."""

    def __init__(self, bookie_id: str) -> None:
        super().__init__(
            f"bookie {bookie_id} does not say where its HTTP is: give it with --http HOST:PORT"
        )
        self.bookie_id = bookie_id


class OrderRefused(BookieAdminError):
    """The bookie answered with an error, or not at all."""

    def __init__(self, bookie_id: str, why: str) -> None:
        super().__init__(f"bookie {bookie_id} did not obey: {why}")
        self.bookie_id = bookie_id


class CrossedRange(BookieAdminError):
    """Entries were asked for backwards."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(
            f"--first {first} comes after --last {last}: give the smaller number as --first"
        )
        self.first = first
        self.last = last


class UnreadableFile(BookieAdminError):
    """A file (or directory) that is not there, or is of no bookie."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} cannot be read: {why}")
        self.path = path
