"""How much may wait for receipts: for one producer, and for all producers of a client.

What finds no room waits in its order. Both limits may be passed by one message: any message fits
where nothing else is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from geminga.errors import ClientError

# Upstream's Java client: a client's producers hold so many bytes that have no receipt yet.
MEMORY_LIMIT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """What waits for room: ``enter`` is called when there is some, or ``fail`` if none will come.

    ``is_patient`` waits until half of the room is free.
    """

    enter: Callable[[], None]
    fail: Callable[[ClientError], None]
    is_patient: bool = False


class MemoryLimit:
    """The bytes of messages that all producers of a client hold, and how many that may be."""

    def __init__(self, bytes_max: int = MEMORY_LIMIT_BYTES) -> None:
        assert bytes_max >= 1
        self.bytes_max = bytes_max
        self.used_bytes = 0
        # The rooms in which something waits, in the order in which that began.
        self._crowded: dict[Room, None] = {}

    def expect(self, room: Room) -> None:
        """Something waits in ``room``."""
        self._crowded[room] = None

    def forget(self, room: Room) -> None:
        """Nothing waits in ``room`` any more."""
        self._crowded.pop(room, None)

    def give_back(self, payload_bytes: int) -> None:
        """Messages are settled: whatever waits for room may enter, whose producer it be."""
        self.used_bytes -= payload_bytes
        for room in tuple(self._crowded):
            room.admit()


class Room:
    """The messages of one producer that wait for receipts, and what waits until there are fewer."""

    def __init__(self, memory: MemoryLimit, messages_max: int) -> None:
        assert messages_max >= 1
        self.messages = 0
        self._messages_max = messages_max
        self._memory = memory
        self._waiting: deque[Waiting] = deque()

    @property
    def is_full(self) -> bool:
        """Must the next message wait, behind those that wait already?"""
        # Written out, here and below: they are asked for every message.
        memory = self._memory
        return (
            self.messages >= self._messages_max
            or memory.used_bytes >= memory.bytes_max
            or bool(self._waiting)
        )

    @property
    def is_half_full(self) -> bool:
        """Is more than half of the room taken, or does something wait?"""
        memory = self._memory
        return (
            self.messages * 2 >= self._messages_max
            or memory.used_bytes * 2 >= memory.bytes_max
            or bool(self._waiting)
        )

    @property
    def used_bytes(self) -> int:
        """The bytes that all producers of the client hold."""
        return self._memory.used_bytes

    def take(self, payload_bytes: int, messages: int = 1) -> None:
        """One more message, or so many, wait for their receipts."""
        self.messages += messages
        self._memory.used_bytes += payload_bytes

    def give_back(self, messages: int, payload_bytes: int) -> None:
        """So many messages are settled."""
        self.messages -= messages
        if self._waiting:
            self._memory.expect(self)
        self._memory.give_back(payload_bytes)

    def wait(self, waiting: Waiting) -> None:
        """Have something wait for its turn."""
        self._waiting.append(waiting)
        self._memory.expect(self)

    def leave(self, waiting: Waiting) -> bool:
        """Let something wait no longer; says whether it still did."""
        if waiting not in self._waiting:
            return False
        self._waiting.remove(waiting)
        self.admit()  # what stood behind it may be content with less
        return True

    def admit(self) -> None:
        """Let in what there is room for."""
        while self._waiting and self._has_free(2 if self._waiting[0].is_patient else 1):
            self._waiting.popleft().enter()
        if not self._waiting:
            self._memory.forget(self)

    def end(self, error: ClientError) -> None:
        """There will be no more room: the producer is closed."""
        while self._waiting:
            self._waiting.popleft().fail(error)
        self._memory.forget(self)

    def _has_free(self, share: int) -> bool:
        """Is less than one of ``share`` equal parts of the room taken?"""
        memory = self._memory
        return (
            self.messages * share < self._messages_max
            and memory.used_bytes * share < memory.bytes_max
        )
