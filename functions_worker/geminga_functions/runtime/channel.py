"""The worker's end of the channel to an instance, whether it is a process or a thread."""

from __future__ import annotations

import asyncio
import logging
import socket

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


class InstanceChannel:
    """The worker's end of the channel to one instance."""

    def __init__(self, name: InstanceName) -> None:
        self.name = name
        # Set when the instance reports that it has started.
        self.started = asyncio.Event()
        # What the instance reported last, if it failed or its lease ended.
        self.failed: Ending | None = None
        # Set once the channel has ended.
        self.is_lost = asyncio.Event()
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

    def stop(self, timeout_s: float) -> None:
        """Let the instance finish its messages within ``timeout_s``, and end."""
        self._channel.send(Stop(timeout_s))

    def close(self) -> None:
        """End the channel, which the instance takes for the end of its worker."""
        self._channel.close()

    def _lost(self) -> None:
        self.is_lost.set()
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
                self.failed = Ending(trace, message.is_user_error)
            case Expired():
                self.failed = Ending("the lease of the instance has ended", is_lease_over=True)
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
