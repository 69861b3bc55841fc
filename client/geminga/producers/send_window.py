"""Back-pressure of producers: how many messages may be without a receipt at one time.

Two limits hold together. A ``SendWindow`` bounds the messages of one producer, a ``MemoryLimit``
the bytes of all producers of a client. A message that finds its window full waits in order. A
single message may pass both limits: any message fits where no other is pending, or a message larger
than the limit could never be sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from geminga.errors import ClientError

# As upstream's Java client: the bytes without a receipt that all producers of a client may hold.
MEMORY_LIMIT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class WindowWaiter:
    """A caller that waits for a free place in a window."""

    # Called once there is a place; it acquires the place itself, or leaves it to the next waiter.
    enter: Callable[[], None]
    # Called instead of ``enter`` when the producer has ended.
    fail: Callable[[ClientError], None]
    # Whether the caller waits until half of the window is free: it will send many messages.
    wants_half: bool = False


@dataclass(slots=True, eq=False)
class MemoryLimit:
    """The bytes of messages that all producers of a client hold, and how many that may be."""

    # At least 1, or nothing could ever be sent: ``connect`` refuses less.
    bytes_max: int = MEMORY_LIMIT_BYTES
    used_bytes: int = 0
    # The windows that have waiters, and no others, longest first: a window enters with its first
    # waiter, and leaves with its last. What one producer releases may let the waiter of another one
    # in, so a release looks at all of them. A dict for its order: a set's order would differ from
    # run to run.
    windows_waiting: dict[SendWindow, None] = field(default_factory=dict["SendWindow", None])

    def release(self, payload_bytes: int) -> None:
        """Count messages as settled, and admit waiters of any producer of the client."""
        self.used_bytes -= payload_bytes
        # A copy: ``admit`` takes windows without waiters out of the dict.
        for window in tuple(self.windows_waiting):
            window.admit()


@dataclass(slots=True, eq=False)
class SendWindow:
    """The messages of one producer that have no receipt yet, and the callers that wait."""

    memory: MemoryLimit
    # At least 1: ``ProducerSettings`` refuses less.
    messages_max: int
    # Messages that were acquired and not released: those in open batches are among them.
    messages: int = 0
    # In the order of their calls. None is overtaken: while one waits the window counts as full.
    waiters: deque[WindowWaiter] = field(default_factory=deque[WindowWaiter])

    # HOT: these two are read for every message, so each has the condition written out.

    @property
    def is_full(self) -> bool:
        """Must the next message wait, behind the waiters that are there already?"""
        memory = self.memory
        return (
            self.messages >= self.messages_max
            or memory.used_bytes >= memory.bytes_max
            or bool(self.waiters)
        )

    @property
    def is_half_full(self) -> bool:
        """Is at least half of the window taken, or does a caller wait?"""
        memory = self.memory
        return (
            self.messages * 2 >= self.messages_max
            or memory.used_bytes * 2 >= memory.bytes_max
            or bool(self.waiters)
        )

    def acquire(self, payload_bytes: int, messages: int = 1) -> None:
        """Count messages as pending, of ``payload_bytes`` together; ``is_full`` was asked."""
        self.messages += messages
        self.memory.used_bytes += payload_bytes

    def release(self, messages: int, payload_bytes: int) -> None:
        """Count messages as settled: stored or failed."""
        self.messages -= messages
        # Behind the count of messages, which the waiters that this admits look at.
        self.memory.release(payload_bytes)

    def enqueue(self, waiter: WindowWaiter) -> None:
        """Have ``waiter`` called when its turn has come and there is a free place."""
        self.waiters.append(waiter)
        self.memory.windows_waiting[self] = None

    def withdraw(self, waiter: WindowWaiter) -> bool:
        """Take a waiter out that has given up; says whether it still waited."""
        # It was called already, or the producer has ended.
        if waiter not in self.waiters:
            return False
        self.waiters.remove(waiter)
        # The waiters behind one that wants half of the window may need less.
        self.admit()
        return True

    def admit(self) -> None:
        """Call the waiters for which there is a place now, in their order."""
        memory = self.memory
        while self.waiters:
            # Half of both limits must be free, or one place.
            share = 2 if self.waiters[0].wants_half else 1
            if (
                self.messages * share >= self.messages_max
                or memory.used_bytes * share >= memory.bytes_max
            ):
                return
            # Looked at anew in each round: the waiter takes its place within this call, and may
            # leave none.
            self.waiters.popleft().enter()
        # No waiter is left, so that releases need not look here.
        memory.windows_waiting.pop(self, None)

    def end(self, error: ClientError) -> None:
        """Fail all waiters with ``error``: the producer has ended."""
        while self.waiters:
            self.waiters.popleft().fail(error)
        self.memory.windows_waiting.pop(self, None)
