"""The errors of ledgers, as their writers and readers get them.

GemingaError
└── LedgerError
    ├── NoSuchLedger           there is no metadata of it
    ├── NoSuchEntry            the entry was never confirmed, or the ledger ends before it
    ├── EntryCorrupt           every copy that could be read is damaged
    ├── LedgerClosed           the writer takes no more entries: it was closed here
    ├── LedgerFenced           the writer takes no more entries: another process took over
    │   └── LedgerClosedByOther  and has closed it already, at another entry than we would
    ├── WrongPassword          the ledger was created with another password
    ├── AppendRefused          so many bookies refused an entry that it can never be confirmed
    │   └── BookiesReadOnly      because they are read-only or full
    ├── AppendTimedOut         not enough bookies answered within the deadline
    ├── EntryTooLarge          no bookie takes a frame of that size
    ├── TooMuchPending         the writer holds as many unconfirmed bytes as it may
    ├── NotEnoughBookies       fewer bookies are available than the ensemble needs
    ├── BookieUnavailable      one bookie cannot be reached or did not answer
    ├── RecoveryUndecided      too few bookies answered to say where the ledger ends
    ├── UnsupportedLedger      its metadata asks for something that we cannot do
    └── LedgerIdsExhausted     ZooKeeper gives no more numbers

A bookie's own refusals (``geminga_protocol.bookkeeper.errors``) are about one request to one
bookie; they are the causes of these errors. ``retry`` says whether the same call may work later.
"""

from __future__ import annotations

from typing import ClassVar

from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.errors import refusal_of
from geminga_runtime.errors import GemingaError


class LedgerError(GemingaError):
    """A ledger could not be written, read, or managed."""

    code: ClassVar[str] = "PersistenceError"


class _OfLedger(LedgerError):
    """An error whose text needs nothing but the ledger's id."""

    text: ClassVar[str]  # with {} for the id

    def __init__(self, ledger_id: int) -> None:
        super().__init__(self.text.format(ledger_id))
        self.ledger_id = ledger_id


class NoSuchLedger(_OfLedger):
    """The ledger was deleted, or never created."""

    text = "there is no ledger {}"


class NoSuchEntry(LedgerError):
    """The entry is beyond the ledger's end, or on none of the bookies that should have it."""

    def __init__(self, ledger_id: int, entry_id: int) -> None:
        super().__init__(f"there is no entry {entry_id} in ledger {ledger_id}")
        self.ledger_id = ledger_id
        self.entry_id = entry_id


class EntryCorrupt(LedgerError):
    """No bookie gave a copy of the entry with the right digest; at least one copy was damaged."""

    def __init__(self, ledger_id: int, entry_id: int) -> None:
        super().__init__(f"every copy of entry {entry_id} in ledger {ledger_id} is damaged")
        self.ledger_id = ledger_id
        self.entry_id = entry_id


class LedgerClosed(_OfLedger):
    """The writer was closed; append to another ledger."""

    text = "ledger {} is closed and takes no more entries"


class LedgerFenced(_OfLedger):
    """Another writer took the ledger over; this one must stop, not retry."""

    text = "ledger {} was fenced by a newer writer"


class LedgerClosedByOther(LedgerFenced):
    """The ledger was recovered under this writer, and closed at another entry than it would."""

    def __init__(self, ledger_id: int, *, last_entry: int, our_last_entry: int) -> None:
        super().__init__(ledger_id)
        self.last_entry = last_entry
        self.our_last_entry = our_last_entry

    def __str__(self) -> str:
        return (
            f"ledger {self.ledger_id} was closed by another writer at entry {self.last_entry}, "
            f"where this writer has confirmed entry {self.our_last_entry}"
        )


class WrongPassword(_OfLedger):
    """The bookies know the ledger under another password."""

    text = "ledger {} has another password"


class AppendRefused(LedgerError):
    """An entry was refused by so many bookies that it can never be confirmed.

    The ledger should be closed and writing go on in a new one. ``bookie_id`` is the last one that
    refused; its refusal is the cause.
    """

    what: ClassVar[str] = "refused"

    def __init__(self, ledger_id: int, entry_id: int, bookie_id: str) -> None:
        super().__init__(f"entry {entry_id} of ledger {ledger_id} was {self.what} by {bookie_id}")
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.bookie_id = bookie_id


class BookiesReadOnly(AppendRefused):
    """The bookies of the ledger take no new entries, usually because their disks are full."""

    what = "refused as not writable"


class AppendTimedOut(LedgerError):
    """An entry was not confirmed within the deadline: its bookies are down or hang."""

    retry = True

    def __init__(self, ledger_id: int, entry_id: int, waited_s: float) -> None:
        super().__init__(
            f"entry {entry_id} of ledger {ledger_id} was not confirmed within {waited_s:.0f} s"
        )
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.waited_s = waited_s


class EntryTooLarge(LedgerError):
    """An entry of so many bytes does not fit into one frame."""

    code = "NotAllowedError"

    def __init__(self, payload_bytes: int, payload_bytes_max: int) -> None:
        super().__init__(
            f"an entry of {payload_bytes} bytes, where {payload_bytes_max} are the most"
        )
        self.payload_bytes = payload_bytes
        self.payload_bytes_max = payload_bytes_max


class TooMuchPending(LedgerError):
    """The writer holds as many unconfirmed bytes as it may: wait for confirmations."""

    retry = True

    def __init__(self, ledger_id: int, pending_bytes: int, pending_bytes_max: int) -> None:
        super().__init__(
            f"{pending_bytes} bytes of ledger {ledger_id} wait for their bookies, "
            f"where {pending_bytes_max} may"
        )
        self.ledger_id = ledger_id
        self.pending_bytes = pending_bytes
        self.pending_bytes_max = pending_bytes_max


class NotEnoughBookies(LedgerError):
    """Fewer bookies are registered than a ledger needs."""

    retry = True

    def __init__(self, wanted: int, available: int) -> None:
        super().__init__(f"{wanted} bookies are needed, where {available} are available")
        self.wanted = wanted
        self.available = available


class BookieUnavailable(LedgerError):
    """One bookie is not registered, cannot be reached, or gave no answer."""

    retry = True

    def __init__(self, bookie_id: str, why: str) -> None:
        super().__init__(f"bookie {bookie_id} is not available: {why}")
        self.bookie_id = bookie_id
        self.why = why


class RecoveryUndecided(LedgerError):
    """Too few bookies answered: confirmed entries may be on those that did not."""

    retry = True

    def __init__(self, ledger_id: int, what: str) -> None:
        super().__init__(f"ledger {ledger_id} cannot be recovered now: {what}")
        self.ledger_id = ledger_id


class UnsupportedLedger(LedgerError):
    """The ledger's metadata names something that is not served here, such as another digest."""

    def __init__(self, ledger_id: int, what: str) -> None:
        super().__init__(f"ledger {ledger_id} {what}")
        self.ledger_id = ledger_id


class LedgerIdsExhausted(LedgerError):
    """ZooKeeper's counter for ledger ids is at its end."""

    def __init__(self) -> None:
        super().__init__("there are no more ledger ids")


def append_error(
    return_code: int, ledger_id: int, entry_id: int, bookie_id: str
) -> LedgerFenced | WrongPassword | AppendRefused:
    """What a bookie's refusal of an entry means to the writer.

    The first two are the end of it: every other bookie refuses the same. An ``AppendRefused`` is
    about this bookie alone.
    """
    # A bookie keeps a fence for good, and a recovery fences every bookie that it can reach: to wait
    # for the others would only put the end off.
    if return_code == ReturnCode.EFENCED:
        return LedgerFenced(ledger_id)
    if return_code == ReturnCode.EUA:
        return WrongPassword(ledger_id)
    is_read_only = return_code == ReturnCode.EREADONLY
    error = (BookiesReadOnly if is_read_only else AppendRefused)(ledger_id, entry_id, bookie_id)
    error.__cause__ = refusal_of(return_code, ledger_id, entry_id)
    return error
