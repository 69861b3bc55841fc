"""The messages that have come and were not yet received, and the permits to send more of them.

A broker sends no more messages than it was granted permits. Every message that leaves the inbox,
or never got in, gives its permit back; half a queue of them is granted at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from geminga.errors import ClientError
from geminga.messages import Message


class Inbox:
    """Holds up to ``messages_max`` messages, a little more where batches overshoot.

    ``grant(permits)`` tells the broker; it may do nothing while there is none.
    """

    def __init__(self, messages_max: int, grant: Callable[[int], None]) -> None:
        assert messages_max >= 1
        self._messages_max = messages_max
        self._grant = grant
        self._messages: deque[Message] = deque()
        self._waiting: deque[asyncio.Future[Message]] = deque()
        self._returned_permits = 0
        self._end: ClientError | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def begin_anew(self) -> None:
        """A broker starts delivering: what is held will come again, and all permits are free."""
        self._messages.clear()
        self._returned_permits = 0
        self._grant(self._messages_max)

    def put(self, messages: Sequence[Message], *, left_out: int = 0) -> None:
        """Take in what came; ``left_out`` messages used permits too, and are not to be received."""
        given = 0
        for message in messages:
            if self._give(message):
                given += 1
            else:
                self._messages.append(message)
        self._return(given + left_out)

    async def get(self) -> Message:
        """The oldest message, waited for; who waits longest is served first.

        Raises the error that ended the inbox, once it is empty.
        """
        if self._messages:
            message = self._messages.popleft()
            self._return(1)
            return message
        if self._end is not None:
            raise self._end
        waiter: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter in self._waiting:
                # Whoever asks again and again for a short while must leave nothing behind.
                self._waiting.remove(waiter)
            elif not waiter.cancelled() and waiter.exception() is None:
                # It was given to us in the same turn in which we were told to stop.
                self._take_back(waiter.result())
            raise

    def drop_all(self) -> None:
        """Throw away what is held; the permits go back."""
        dropped = len(self._messages)
        self._messages.clear()
        self._return(dropped)

    def end(self, error: ClientError) -> None:
        """Nothing more will come: whoever waits now or later gets ``error``."""
        if self._end is None:
            self._end = error
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(self._end)

    def _give(self, message: Message) -> bool:
        """Hand a message to whoever waits, if anyone does."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(message)
                return True
        return False

    def _take_back(self, message: Message) -> None:
        if not self._give(message):
            self._messages.appendleft(message)
            self._returned_permits -= 1

    def _return(self, permits: int) -> None:
        self._returned_permits += permits
        if self._returned_permits >= max(1, self._messages_max // 2):
            self._grant(self._returned_permits)
            self._returned_permits = 0
