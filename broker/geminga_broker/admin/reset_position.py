"""A message as REST names it (``ResetCursorData``), and where reading from it begins. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.managed_ledger.acknowledgement.acknowledged import Words
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.policies.levels import INT_MAX, LONG_MAX
from geminga_protocol.records.encodings.bit_sets import words_of_bits
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import whole_number


@dataclass(frozen=True, slots=True)
class ResetPosition:
    """The message, or with ``is_excluded`` the one after it."""

    # The entry; -1 in either place stands for the earliest one. A position with -1 in it lies
    # before all entries, so seeking to it begins with the first one.
    position: Position
    # The message within the entry's batch; -1: the whole entry.
    batch_index: int = -1
    is_excluded: bool = False

    @classmethod
    def parse(cls, body: dict[str, object]) -> ResetPosition:
        """Parse JSON: ``ledgerId``, ``entryId``, ``batchIndex``, ``excluded``.

        Raises ``RestError`` 400 where one has the wrong type or is out of bounds.
        """
        return cls(
            Position(_number(body, "ledgerId", LONG_MAX), _number(body, "entryId", LONG_MAX)),
            _number(body, "batchIndex", INT_MAX),
            body.get("excluded") is True,
        )

    def first_and_remaining(self, batch_size: int) -> tuple[Position, Words]:
        """The entry to begin with, and the bits of those messages in it that are left.

        No bits stand for all messages. ``batch_size`` is how many messages the entry has, 0 where
        it is no batch.
        """
        ledger_id, entry_id = self.position
        # It need not exist: seeking goes on to the next entry that does.
        behind = Position(ledger_id, entry_id + 1)
        if not batch_size or self.batch_index < 0:
            return (behind if self.is_excluded else self.position), ()
        # So many messages of the batch are passed over: those before the index, and with
        # ``is_excluded`` the one at it.
        passed = self.batch_index + self.is_excluded
        if passed == 0:
            return self.position, ()
        # Nothing of the batch is left, which is the same as the entry after it.
        if passed >= batch_size:
            return behind, ()
        # The bits of the messages from that one on. As acknowledgements have them: a set bit stands
        # for a message that is not acknowledged (``ack_set`` of ``MessageIdData``).
        return self.position, words_of_bits(((1 << batch_size) - 1) >> passed << passed)


def _number(body: dict[str, object], name: str, largest: int) -> int:
    """A member of the body; -1 where it is missing. As upstream, it may be a number in a string."""
    value = body.get(name, -1)
    if isinstance(value, str):
        value = whole_number(value)
    # The bounds are those of Java's long and int, as which upstream reads them.
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= largest:
        raise RestError(400, f"{name} should be a whole number from -1 to {largest}")
    return value
