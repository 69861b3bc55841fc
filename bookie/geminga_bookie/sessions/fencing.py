"""Fencing a ledger: at once in memory, and answered only when the fence is durable.

Ledger recovery fences a ledger on its bookies before it reads the ledger's end. It relies on the
answer: no bookie that has answered may take a normal add of the ledger any more, crash or not. In
memory the fence holds from the moment of the request, so an add that comes after it is refused even
while the fence is still being journalled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from geminga_bookie.formats.journal_v1 import Fence
from geminga_bookie.journal.journals import JournalWriter
from geminga_bookie.storage.ledgers import Ledger
from geminga_bookie.storage.storage import Storage
from geminga_protocol.bookkeeper.errors import BookieFailed

log = logging.getLogger(__name__)

# Called with the argument that was given along, and whether the fence is durable.
WhenFenced = Callable[[Any, bool], None]


def fence(
    storage: Storage,
    journal: JournalWriter,
    ledger_id: int,
    master_key: bytes,
    when_fenced: WhenFenced,
    argument: object,
) -> bool:
    """Refuse normal adds of the ledger from now on; True where that is durable already.

    Where it is not, ``when_fenced`` is called with ``argument`` once it is, or has failed. Raises
    ``WrongMasterKey`` and ``BookieFailed``; then ``when_fenced`` is not called.
    """
    ledger = storage.fence(ledger_id, master_key)
    if ledger.is_fence_durable:
        return True
    # In memory the ledger is fenced all the same, which is right: no add of it can be durable here
    # either.
    if journal.error is not None:
        raise BookieFailed(ledger_id)
    # Also where an earlier request has journalled the fence and it is not durable yet: this one
    # must not be answered before it is.
    journal.append_mark(Fence(ledger_id, master_key))
    # Put down in the same turn as the mark: in the next one the writer task may take the group.
    journal.forming.waiters.append((_fence_written, (ledger, when_fenced, argument)))
    return False


def _fence_written(fenced: tuple[Ledger, WhenFenced, object], is_written: bool) -> None:  # noqa: FBT001 a Waiter
    ledger, when_fenced, argument = fenced
    if is_written and not ledger.is_fence_durable:
        ledger.is_fence_durable = True
        log.info("ledger fenced", extra={"ledger": ledger.ledger_id})
    # Called last: the caller reads the entry now, and its answer must not be older than the fence.
    when_fenced(argument, is_written)
