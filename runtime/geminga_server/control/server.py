"""The supervisor's side of the control channels: sessions with parts, and operators' instructions.

The supervisor listens (``ControlServer``) and has one ``PartSession`` for each part that said
hello. The end of a channel is a message too: to the supervisor, that the part has ended or is about
to; to the part, that the supervisor died, whereupon it shuts down. Otherwise parts are ended by
SIGTERM, which also reaches a part whose event loop hangs.

``geminga standalone`` pings its parts and sets their log level. Health checks, drains and faults
are for supervisors that do more than keep parts running: one that takes a part out of a cluster
asks it to drain first, and a test server makes it misbehave.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from geminga_runtime.control_codec import (
    Drain,
    Drained,
    HealthAnswer,
    HealthRequest,
    Hello,
    Instruction,
    InstructionAnswer,
    Ping,
    Pong,
    Ready,
)
from geminga_runtime.service import Service
from geminga_server.control.channel import Channel, listen
from geminga_server.errors import ControlError

log = logging.getLogger(__name__)

# A peer that connects and sends neither Hello nor an instruction in time is disconnected.
HELLO_TIMEOUT_S = 5.0
# The parts, and a few that just died. Parts that start again and again must not exhaust the
# supervisor's files.
CHANNELS_MAX = 64


# What a part sends, in order: Hello, which makes the session; Ready once; then answers to what the
# supervisor sends. The three futures are set once each, and ``lose`` sets all that are left: no
# waiter outlives the part.
class PartSession:
    """The supervisor's view of one living part."""

    def __init__(self, channel: Channel, hello: Hello) -> None:
        # Carries messages that need no answer, such as ``SetLogLevel``. The part takes its end for
        # the supervisor's death.
        self.channel = channel
        self.part = hello.part
        self.pid = hello.pid
        self.version = hello.version
        # The part has sent nothing since the last ping.
        self.is_silent = False
        # The part's addresses, once it serves; the end of a drain.
        self._ready: asyncio.Future[Mapping[str, str]] = _future()
        self._drained: asyncio.Future[None] = _future()
        # Done when the channel has ended, or a successor took the part's place.
        self.lost: asyncio.Future[None] = _future()
        # Health checks without an answer, by the id of their request.
        self._answers: dict[int, asyncio.Future[HealthAnswer]] = {}
        self._next_request_id = 1

    @property
    def is_open(self) -> bool:
        """Whether messages still reach the part."""
        return not self.lost.done()

    async def wait_ready(self) -> Mapping[str, str]:
        """The part's addresses, as soon as it serves. Raises ``ControlError`` if it ends before."""
        # Shielded: a waiter that gives up must not cancel the future of the others.
        return await asyncio.shield(self._ready)

    async def check_health(self, timeout_s: float) -> HealthAnswer:
        """Ask the part for its health. Without an answer within ``timeout_s``, or when the part
        ends, it is unhealthy."""
        # Numbered, because a check that hangs may be answered after a later one.
        request_id = self._next_request_id
        self._next_request_id += 1
        answer: asyncio.Future[HealthAnswer] = _future()
        self._answers[request_id] = answer
        self.channel.send(HealthRequest(request_id))
        try:
            async with asyncio.timeout(timeout_s):
                # ``wait`` does not cancel what it waits for: ``lost`` has other waiters.
                either: set[asyncio.Future[Any]] = {answer, self.lost}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            reason = f"the {self.part} ended"
        except TimeoutError:
            reason = f"no answer from the {self.part} within {timeout_s:g} s"
        finally:
            del self._answers[request_id]
        return HealthAnswer(request_id, is_healthy=False, reason=reason)

    def ping(self) -> None:
        """Ask the part for a sign of life; ``is_silent`` until it sends anything."""
        # Before sending. Any message of the part counts as a sign of life, not its Pong alone.
        self.is_silent = True
        self.channel.send(Ping())

    async def drain(self, deadline_s: float) -> None:
        """Have the part finish its work under way. Raises ``ControlError`` on time-out."""
        # A part drains once: where it has done so already, this returns at once.
        self.channel.send(Drain(deadline_s))
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.shield(self._drained)
        except TimeoutError as error:
            raise ControlError(f"the {self.part} did not drain in {deadline_s:g} s") from error

    def receive(self, message: object) -> None:
        """Take a message from the part. Raises ``ControlError`` for one that parts do not send."""
        self.is_silent = False
        match message:
            case Pong():
                pass
            case Ready(addresses):
                # A part that repeats itself changes nothing: the first addresses hold.
                if not self._ready.done():
                    self._ready.set_result(addresses)
            case HealthAnswer(request_id):
                answer = self._answers.get(request_id)
                if answer is not None and not answer.done():  # else it came too late
                    answer.set_result(message)
            case Drained():
                if not self._drained.done():
                    self._drained.set_result(None)
            case _:
                raise ControlError(f"a part sent {type(message).__name__}")

    def lose(self) -> None:
        """The channel has ended."""
        if not self.lost.done():
            self.lost.set_result(None)
        gone = ControlError(f"the {self.part} ended")
        for future in (self._ready, self._drained):
            if not future.done():
                future.set_exception(gone)
                future.exception()  # marks it as retrieved: there may be no waiter


OnSession = Callable[[PartSession], None]
OnInstruction = Callable[[Instruction], InstructionAnswer]


def refuse_instruction(instruction: Instruction) -> InstructionAnswer:
    """The answer of a supervisor that takes no instructions."""
    return InstructionAnswer(is_done=False, text=f"{instruction.action} is not done here")


# What becomes of a channel:
#
#     connected --Hello--------------> a session, until the channel ends or a successor comes
#               --Instruction--------> answered, and closed
#               --anything else------> closed
#               --HELLO_TIMEOUT_S----> closed
class ControlServer(Service):
    """Listens at ``path``; calls ``on_session`` with each part that said hello, and
    ``on_instruction`` with an operator's instruction.

    A part that says hello while another of its name is connected takes its place: the older one is
    disconnected, and so ends itself. Opening raises ``OSError`` where the socket cannot be made.
    """

    def __init__(
        self,
        path: Path,
        on_session: OnSession,
        on_instruction: OnInstruction = refuse_instruction,
    ) -> None:
        super().__init__()
        self._path = path
        self._on_session = on_session
        self._on_instruction = on_instruction
        # Each with the timer that waits for its first message; None once it said hello.
        self._channels: dict[Channel, asyncio.TimerHandle | None] = {}
        self._sessions: dict[Channel, PartSession] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        # Closed in the opposite order: no new connections, then those that there are, then the
        # name.
        server = await listen(self._path, self._make_channel)
        stack.callback(self._path.unlink, missing_ok=True)
        stack.callback(self._close_channels)
        stack.callback(server.close)

    def session(self, part: str) -> PartSession | None:
        """The session of the part of that name; None where it is not connected."""
        return next((one for one in self._sessions.values() if one.part == part), None)

    def _make_channel(self) -> Channel:
        channel = Channel(self._receive, self._lose)
        if len(self._channels) >= CHANNELS_MAX:
            log.warning("too many control channels", extra={"channels_max": CHANNELS_MAX})
            # The connection is not made yet; the channel ends as soon as it is.
            channel.close()
            return channel
        loop = asyncio.get_running_loop()
        self._channels[channel] = loop.call_later(HELLO_TIMEOUT_S, self._time_out, channel)
        return channel

    def _time_out(self, channel: Channel) -> None:
        log.warning("control peer said no hello", extra={"timeout_s": HELLO_TIMEOUT_S})
        channel.close()

    def _receive(self, channel: Channel, message: object) -> None:
        session = self._sessions.get(channel)
        if session is not None:
            session.receive(message)
        elif isinstance(message, Hello):
            timer = self._channels.get(channel)
            if timer is not None:
                timer.cancel()
                self._channels[channel] = None
            # The part started anew while its former process still lives, or while the end of its
            # channel has not been read yet.
            older = self.session(message.part)
            if older is not None:
                log.warning(
                    "part replaced", extra={"served_by": older.pid, "replaced_by": message.pid}
                )
                older.channel.close()
            session = self._sessions[channel] = PartSession(channel, message)
            # The older session is over now, not when its channel has ended: what waits for that
            # part must not wait for its successor.
            if older is not None:
                for other, one in list(self._sessions.items()):
                    if one is older:
                        del self._sessions[other]
                older.lose()
            # Last: the caller finds the new session by the part's name, and not the older one.
            self._on_session(session)
        elif isinstance(message, Instruction):
            # A command sends one instruction and waits for the one answer. No session is made: the
            # command is no part, and its end is no news.
            channel.send(self._on_instruction(message))
            channel.close()
        else:
            raise ControlError(f"{type(message).__name__} came before Hello")

    def _lose(self, channel: Channel) -> None:
        timer = self._channels.pop(channel, None)
        if timer is not None:
            timer.cancel()
        # None for a channel that said no hello, was refused, or whose part was replaced.
        session = self._sessions.pop(channel, None)
        if session is not None:
            session.lose()

    def _close_channels(self) -> None:
        for channel, timer in self._channels.items():
            if timer is not None:
                timer.cancel()
            channel.close()


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()
