"""An entry on its way to a log, and the publisher that is told what became of it.

One request is made for each message that a broker takes. It is a plain tuple behind this name: a
named tuple takes 0.2 to 0.35 us longer to make and 0.1 us to take apart, of the 2.5 us that a
broker needs for a message of a run (CPython 3.11). Loops take it apart by position, in the order
below; all else asks ``payload_of`` and the other functions here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Protocol

from geminga_broker.errors import BrokerError
from geminga_broker.log.positions import Entry


class Publisher(Protocol):
    """Gives entries to a log: a client's producer, or the broker itself."""

    name: str

    @property
    def is_chunking(self) -> bool:
        """Whether a message was sent in parts (chunks), so that it has to be looked for others."""
        ...

    @property
    def is_numbering(self) -> bool:
        """Whether its sequence ids tell a message that is sent again from a new one."""
        ...

    def confirm(
        self, ledger_id: int, entries: Sequence[Entry], requests: Sequence[AppendRequest]
    ) -> tuple[int, int]:
        """A run of its ``requests`` is durable, in the order of appending, as these ``entries``;
        the messages and bytes of that run, as the publisher sent them."""
        ...

    def fail(self, request: AppendRequest, error: BrokerError) -> None:
        """``request`` is not stored, for that reason."""
        ...


AppendRequest = tuple[bytes, int, Publisher, int, int]
"""``(payload, messages, publisher, sequence_id, highest_sequence_id)``: ``messages`` as
``take_payload`` counts them (0: to be looked at by the dispatcher, and one by itself); the sequence
ids as the client sent them, the highest one 0 where it sent none."""

payload_of: Callable[[AppendRequest], bytes] = itemgetter(0)
messages_of: Callable[[AppendRequest], int] = itemgetter(1)
publisher_of: Callable[[AppendRequest], Publisher] = itemgetter(2)
sequence_id_of: Callable[[AppendRequest], int] = itemgetter(3)
