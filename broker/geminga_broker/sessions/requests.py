"""Commands that take time: each runs as a task, and its error becomes the command's answer.

Tasks are for what waits for storage or ZooKeeper; nothing on the path of a message comes here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

from google.protobuf.message import Message

from geminga_broker.sessions.back_pressure import BackPressure
from geminga_broker.sessions.outbox import Outbox
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_close_consumer, encode_refusal
from geminga_protocol.pulsar.commands import PART_NAMES
from geminga_runtime.errors import GemingaError

log = logging.getLogger(__name__)

# Handlers are given the part of a command that has its fields. This leads back to the type of the
# whole, by the name of the part's class, which no two types share.
_TYPES = {
    field.message_type.full_name: field.number
    for field in api.BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}


@dataclass(slots=True, eq=False)
class Requests:
    """The commands of one client that are in progress."""

    outbox: Outbox
    pressure: BackPressure
    address: str
    # How long one command may take, the wait for its predecessor not included. Less than the
    # client's own operation timeout, so that it learns the reason (``SessionContext``).
    timeout_s: float
    # In the order of starting: a set's order would differ from run to run of a simulation.
    _running: dict[asyncio.Task[object], None] = field(default_factory=dict, init=False)
    # The newest command of each ``after``, which the next one waits for. A chain: each task waits
    # for the one before it, and the last one is here. An entry is removed by its own task, so that
    # ids which a client used once leave nothing behind.
    _last_of: dict[object, asyncio.Task[object]] = field(default_factory=dict, init=False)

    def start(
        self, command: Message, work: Coroutine[Any, Any, None], *, after: object = None
    ) -> None:
        """Run ``work``, which answers ``command``, as a task; its error is answered in the form
        that this command's clients expect.

        Works given the same ``after`` run one after the other: a consumer's commands in the order
        in which they came, while another's slow topic does not delay them.
        """
        predecessor = self._last_of.get(after) if after is not None else None
        task = asyncio.get_running_loop().create_task(
            self._run(command, work, predecessor),
            name=f"{self.address} {type(command).__name__}",
        )
        self._running[task] = None
        # Pauses nothing yet: the connection calls ``review`` once it has handled its read.
        self.pressure.commands += 1
        if after is not None:
            self._last_of[after] = task

        def finished(_: asyncio.Task[None]) -> None:
            # A task that is cancelled before its first step never awaited the coroutine. Without
            # this, Python would warn of a coroutine that was never awaited.
            work.close()
            del self._running[task]
            if self._last_of.get(after) is task:
                del self._last_of[after]
            self.pressure.commands -= 1
            if self.pressure.is_reading_paused:
                self.pressure.review()

        task.add_done_callback(finished)

    async def _run(
        self,
        command: Message,
        work: Coroutine[Any, Any, None],
        predecessor: asyncio.Task[object] | None,
    ) -> None:
        try:
            if predecessor is not None:
                # Unlike ``await predecessor`` this does not raise the predecessor's error here. Its
                # failure is no reason to refuse this command: a client may close a producer that it
                # could not open.
                await asyncio.wait((predecessor,))
            async with asyncio.timeout(self.timeout_s):
                await work
        except GemingaError as error:
            self.fail(command, error)
        except TimeoutError:
            self.refuse(command, api.ServiceNotReady, "the broker took too long: try again")
        except Exception:
            log.exception("request failed", extra={"client": self.address})
            # A mistake of ours ends one command, not the connection with all its producers and
            # consumers.
            self.refuse(command, api.UnknownError, "internal error of the broker")

    def fail(self, command: Message, error: GemingaError) -> None:
        """Tell the client that ``command`` failed with ``error``: as the ``ServerError`` that its
        code names, as UnknownError where it names none."""
        is_known = error.code in api.ServerError.keys()  # noqa: SIM118 (an enum wrapper, not a dict)
        code = api.ServerError.Value(error.code) if is_known else api.UnknownError
        self.refuse(command, code, str(error))

    def refuse(self, command: Message, error: api.ServerError.ValueType, reason: str) -> None:
        """Tell the client that ``command`` failed, where it expects an answer at all: in the
        command's own response if that has room for an error, in ERROR otherwise."""
        # ``encode_refusal`` wants the whole command, of which handlers have only a part. The copy
        # is made for errors alone.
        number = _TYPES[command.DESCRIPTOR.full_name]
        whole = api.BaseCommand(type=cast(Any, number))
        getattr(whole, PART_NAMES[number]).CopyFrom(command)
        answer = encode_refusal(whole, error, reason)
        if answer is not None:
            self.outbox.send(answer)
        if isinstance(command, api.CommandSubscribe) and error == api.ServiceNotReady:
            # The official C++ and Python clients (4.2.0) attach a consumer to the connection before
            # they ask for it, and stay attached after this refusal: "already connected", their next
            # attempts end at once, until the subscribe times out. The command by which a broker
            # lets a consumer go detaches it, and it looks its topic up again. Clients that know no
            # such consumer any more ignore the command.
            self.outbox.send(encode_close_consumer(command.consumer_id))

    def cancel(self) -> None:
        """Cancel all that the client asked for: the connection is over."""
        for task in list(self._running):
            # Each finishes in ``finished``, which counts it off. A copy, because ``finished``
            # removes tasks. It runs in a later turn, when the connection's groups have let go of
            # all producers and consumers.
            task.cancel()
