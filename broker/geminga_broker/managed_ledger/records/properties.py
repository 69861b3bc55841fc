"""The properties of a log: texts by name, kept with its record in ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from geminga_broker.errors import StorageUnavailable, TopicFenced
from geminga_broker.managed_ledger.records.own_record import OWNERSHIP_LOST
from geminga_broker.managed_ledger.records.recorded_chain import RecordedChain
from geminga_runtime.coordination import CoordinationError


class OwnedLog(Protocol):
    """What the parts of a log that write its record need of the log itself."""

    name: str
    is_fenced: bool

    def fence(self) -> None:
        """Stop: another broker has the log."""
        ...


@dataclass(slots=True, eq=False)
class LogProperties:
    """The properties of ``owner``, whose record is kept with ``recorded``.

    Made for each use: were it kept with the log, the two would refer to each other, and closed
    logs, of which there may be very many at once, would wait for the garbage collector.
    """

    owner: OwnedLog
    recorded: RecordedChain

    @property
    def all(self) -> Mapping[str, str]:
        """The properties as they are stored."""
        return self.recorded.store.properties

    async def set(self, name: str, value: str) -> None:
        """Return when the property is durable. Raises ``TopicFenced``, ``StorageUnavailable``."""
        if self.owner.is_fenced:
            raise TopicFenced(self.owner.name)
        try:
            await self.recorded.set_property(name, value)
        except OWNERSHIP_LOST as error:
            self.owner.fence()
            raise TopicFenced(self.owner.name) from error
        except CoordinationError as error:
            raise StorageUnavailable(str(error)) from error
