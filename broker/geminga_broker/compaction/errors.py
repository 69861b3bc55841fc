"""What can go wrong with a topic's compaction.

BrokerError
└── CompactionRunning       one at a time
StorageUnavailable
└── CompactedLedgerGone     it was deleted; only the log is left
"""

from __future__ import annotations

from typing import ClassVar

from geminga_broker.errors import BrokerError, StorageUnavailable


class CompactionRunning(BrokerError):
    """The topic is being compacted: asking again can help when that is done."""

    retry: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__("Compaction already in progress")


class CompactedLedgerGone(StorageUnavailable):
    """The ledger that the topic's compaction names is not there."""

    def __init__(self, ledger_id: int) -> None:
        super().__init__(f"the compacted ledger {ledger_id} is gone: read from the log instead")
        self.ledger_id = ledger_id
