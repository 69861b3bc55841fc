"""A running instance, a process or a thread, as its worker sees it: at the end of a channel."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping
from typing import ClassVar

from geminga_functions.instance.messages import (
    INSTANCE_CHANNEL,
    Expired,
    Failed,
    Lease,
    Started,
    StatusAnswer,
    StatusRequest,
    Stop,
    Stopped,
)
from geminga_functions.names import InstanceName
from geminga_functions.runtime.runner import Ending, Order
from geminga_server.control.channel import Channel

log = logging.getLogger(__name__)


# The order of events; an instance may end at any point:
#
#   begin -> started -> a last message (Failed, Expired or Stopped) -> _is_lost -> ended
#
# ``_is_lost`` is the end of the channel, ``ended`` that of the process or thread. Which of the two
# comes first is left to chance, so that subclasses wait for both.
class RunningInstance:
    """An instance that was started, until nothing of it runs any more.

    Subclasses follow the process or thread to its end, and set ``ended`` then. ``logged_as`` names
    the instance in log records.
    """

    # What the log says of an instance that does not stop in time.
    UNSTOPPED: ClassVar[str] = "instance does not stop and is killed"

    def __init__(
        self, name: InstanceName, pid: int | None, logged_as: Mapping[str, object]
    ) -> None:
        self.name = name
        # None in a thread.
        self.pid = pid
        # Set once the instance processes messages.
        self.started = asyncio.Event()
        # Done once nothing of the instance runs any more, whether it ever started or not; never
        # fails.
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        # What the instance reported last, if it failed or its lease ended. It arrives before the
        # end of the channel, for which subclasses wait before they read it.
        self._failed: Ending | None = None
        # Set once the channel has ended.
        self._is_lost = asyncio.Event()
        # Whether the end is ours: the instance was stopped or killed.
        self._is_stopping = False
        self._logged_as = logged_as
        # By the numbers of the requests for status that are not answered yet.
        self._answers: dict[int, asyncio.Future[str | None]] = {}
        self._requests = 0
        self._channel = Channel(self._take, lambda _: self._lost(), INSTANCE_CHANNEL)

    async def begin(self, ours: socket.socket, order: Order) -> None:
        """Take over the socket ``ours``, and send the instance at its other end what to run."""
        ours.settimeout(0)
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(lambda: self._channel, sock=ours)
        except BaseException:
            ours.close()
            raise
        # The instance reads nothing before ``Start``; leases that are extended from now on come
        # behind it.
        self._channel.send(order.start)

    def extend_lease(self, until_s: float) -> None:
        """Let the instance run until ``until_s`` of the monotonic clock."""
        self._channel.send(Lease(until_s))

    async def status(self, timeout_s: float) -> str | None:
        """Request the ``InstanceStatus`` as JSON; None if no answer comes in time."""
        if not self._channel.is_open:
            return None
        # An answer that comes after its time-out finds no request with its number.
        self._requests += 1
        number = self._requests
        self._answers[number] = answer = asyncio.get_running_loop().create_future()
        self._channel.send(StatusRequest(number))
        try:
            async with asyncio.timeout(timeout_s):
                text: str | None = await answer
        except TimeoutError:
            return None
        else:
            return text or None  # empty while the user's code is being loaded
        finally:
            del self._answers[number]

    async def stop(self, timeout_s: float) -> None:
        """Let it finish the messages in progress within ``timeout_s``, then end it by force.

        Returns once it has ended. If this is cancelled, the instance is ended by force at once.
        """
        self._is_stopping = True
        # A channel that has ended drops it; the end of the process or thread is then on its way.
        self._channel.send(Stop(timeout_s))
        try:
            async with asyncio.timeout(timeout_s):
                # Shielded: a time-out, or a cancellation, must not cancel the future itself.
                await asyncio.shield(self.ended)
        except TimeoutError:
            log.warning(self.UNSTOPPED, extra=dict(self._logged_as))
        finally:
            self.kill()
        await asyncio.shield(self.ended)

    def kill(self) -> None:
        """End it by force, at once; ``ended`` is done soon after.

        Without a way to force it, this closes the channel: the instance takes that for the end of
        its worker, and ends when the user's code returns.
        """
        self._is_stopping = True
        self._channel.close()

    def _lost(self) -> None:
        self._is_lost.set()
        # No answer will come: requests need not wait for their time-outs.
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)

    def _take(self, _: Channel, message: object) -> None:
        match message:
            case Started():
                self.started.set()
            case Failed():
                trace = message.trace or "the instance failed and did not say why"
                self._failed = Ending(trace, message.is_user_error)
            case Expired():
                self._failed = Ending("the lease of the instance has ended", is_lease_over=True)
            case Stopped():
                pass  # the end of the channel follows
            case StatusAnswer(request_id, status):
                answer = self._answers.get(request_id)
                if answer is not None and not answer.done():
                    answer.set_result(status)
            case _:
                log.warning(
                    "instance sends what only its worker may",
                    extra={"instance": str(self.name), "kind": type(message).__name__},
                )
