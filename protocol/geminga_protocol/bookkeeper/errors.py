"""The refusals of bookies, and the errors of BookKeeper's protocol.

GemingaError
├── BookieRefusal             an answer other than EOK; ``return_code`` is its number
│   ├── NoSuchLedger            ENOLEDGER
│   ├── NoSuchEntry             ENOENTRY
│   ├── BadRequest              EBADREQ
│   ├── BookieFailed            EIO
│   ├── WrongMasterKey          EUA
│   ├── VersionRefused          EBADVERSION
│   ├── LedgerFenced            EFENCED
│   ├── BookieReadOnly          EREADONLY
│   ├── BookieOverloaded        ETOOMANYREQUESTS
│   └── LedgerStateUnknown      EUNKNOWNLEDGERSTATE
└── WireError
    ├── EntryDigestMismatch   an entry is not the one that its writer wrote
    ├── UnsupportedOperation  a V2 frame with an operation that V2 does not serve
    └── UnsupportedVersion    a frame of another protocol version

Both sides use the refusals: the bookie raises them and sends their ``return_code``; the ledger
client makes them from the received number with ``refusal_of``.
"""

from __future__ import annotations

from typing import ClassVar

from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.errors import WireError
from geminga_runtime.errors import GemingaError


class BookieRefusal(GemingaError):
    """A bookie refused a request about one entry of one ledger.

    ``entry_id`` is -1 where the request was about the ledger or its last entry.
    """

    # The error of Pulsar's protocol that clients of a broker get.
    code: ClassVar[str] = "PersistenceError"
    # The number on the wire.
    return_code: ClassVar[int] = ReturnCode.EBADREQ
    # The beginning of the error's text.
    what: ClassVar[str] = "the bookie refused"

    def __init__(self, ledger_id: int, entry_id: int = -1) -> None:
        super().__init__(f"{self.what} (ledger {ledger_id}, entry {entry_id})")
        self.ledger_id = ledger_id
        self.entry_id = entry_id


class NoSuchLedger(BookieRefusal):
    """This bookie has nothing of the ledger; another bookie may have it."""

    return_code = ReturnCode.ENOLEDGER
    what = "the bookie does not have the ledger"


class NoSuchEntry(BookieRefusal):
    """This bookie knows the ledger but does not have the entry; another bookie may have it."""

    return_code = ReturnCode.ENOENTRY
    what = "the bookie does not have the entry"


class BadRequest(BookieRefusal):
    """The bookie cannot interpret the request; sending it again cannot help."""

    return_code = ReturnCode.EBADREQ
    what = "the bookie does not understand the request"


class BookieFailed(BookieRefusal):
    """The bookie's disk or code failed while it served the request."""

    return_code = ReturnCode.EIO
    retry = True
    what = "the bookie could not read or write its disk"


class WrongMasterKey(BookieRefusal):
    """The ledger was created with another password."""

    return_code = ReturnCode.EUA
    what = "the ledger has another password"


class VersionRefused(BookieRefusal):
    """The bookie does not speak the version of the protocol that the request came in."""

    return_code = ReturnCode.EBADVERSION
    what = "the bookie does not speak this version of the protocol"


class LedgerFenced(BookieRefusal):
    """Another writer took the ledger over; this one must stop, not retry."""

    return_code = ReturnCode.EFENCED
    what = "the ledger was fenced by a newer writer"


class BookieReadOnly(BookieRefusal):
    """The bookie takes no new entries at present; another bookie can."""

    return_code = ReturnCode.EREADONLY
    what = "the bookie is read-only"


class BookieOverloaded(BookieRefusal):
    """The bookie has too many requests in flight; it did not start this one."""

    return_code = ReturnCode.ETOOMANYREQUESTS
    retry = True
    what = "the bookie has too many requests"


class LedgerStateUnknown(BookieRefusal):
    """The bookie may have lost entries of the ledger.

    It answers so instead of "no such entry", which recovery would count as a sign that the entry
    was never acknowledged.
    """

    return_code = ReturnCode.EUNKNOWNLEDGERSTATE
    what = "the bookie cannot tell what it had of the ledger"


class UnknownRefusal(BookieRefusal):
    """The bookie answered with a return code that V2 does not have (``number``)."""

    def __init__(self, ledger_id: int, entry_id: int, number: int) -> None:
        super().__init__(ledger_id, entry_id)
        self.number = number

    def __str__(self) -> str:
        return f"{super().__str__()}: unknown return code {self.number}"


# By return code. ``UnknownRefusal`` is made for every other number.
_REFUSALS: dict[int, type[BookieRefusal]] = {
    int(refusal.return_code): refusal
    for refusal in (
        NoSuchLedger,
        NoSuchEntry,
        BadRequest,
        BookieFailed,
        WrongMasterKey,
        VersionRefused,
        LedgerFenced,
        BookieReadOnly,
        BookieOverloaded,
        LedgerStateUnknown,
    )
}


def refusal_of(return_code: int, ledger_id: int, entry_id: int = -1) -> BookieRefusal:
    """Make the error for a ``return_code`` other than EOK."""
    assert return_code != ReturnCode.EOK
    refusal = _REFUSALS.get(return_code)
    if refusal is None:
        return UnknownRefusal(ledger_id, entry_id, return_code)
    return refusal(ledger_id, entry_id)


class EntryDigestMismatch(WireError):
    """An entry is not the one that its writer wrote under these ids: read another bookie's copy.

    ``entry_id`` is -1 where any entry of the ledger was expected.
    """

    code: ClassVar[str] = "ChecksumError"

    def __init__(self, ledger_id: int, entry_id: int, what: str) -> None:
        super().__init__(f"entry {entry_id} of ledger {ledger_id}: {what}")
        self.ledger_id = ledger_id
        self.entry_id = entry_id


class UnsupportedOperation(WireError):
    """A complete V2 frame whose ``operation`` V2 does not serve; the stream can be read on."""

    def __init__(self, operation: int) -> None:
        super().__init__(f"operation {operation} is not served over the V2 protocol")
        self.operation = operation


class UnsupportedVersion(WireError):
    """A complete frame of another protocol version; the stream can be read on."""

    def __init__(self, version: int) -> None:
        super().__init__(f"protocol version {version}, where version 2 is spoken")
        self.version = version
