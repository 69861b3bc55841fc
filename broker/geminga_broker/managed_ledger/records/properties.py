"""The properties of a log: texts by name, kept with its record in ZooKeeper."""

from __future__ import annotations

from typing import Protocol

from geminga_broker.errors import StorageUnavailable, TopicFenced
from geminga_broker.managed_ledger.records.own_record import OWNERSHIP_LOST
from geminga_broker.managed_ledger.records.recorded_chain import RecordedChain
from geminga_runtime.coordination import CoordinationError


class OwnedLog(Protocol):
    """What the parts of a log that write its record need of the log itself."""

    name: str
    is_fenced: bool
    recorded: RecordedChain

    def fence(self) -> None:
        """Stop: another broker has the log."""
        ...


async def set_property(log: OwnedLog, name: str, value: str) -> None:
    """Return when the property is durable. Raises ``TopicFenced``, ``StorageUnavailable``."""
    # Before the record is asked: a log that was deleted is fenced, too, and has no record.
    if log.is_fenced:
        raise TopicFenced(log.name)
    try:
        await log.recorded.save(properties={name: value})
    except OWNERSHIP_LOST as error:
        log.fence()
        raise TopicFenced(log.name) from error
    except CoordinationError as error:
        raise StorageUnavailable(str(error)) from error
