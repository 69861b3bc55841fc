"""The supervisor and its parts talk: hello, ready, ping, log level; health, drain, faults. And an
operator's command talks with the supervisor: one instruction, one answer.

The supervisor listens (``ControlServer``) and has one ``PartSession`` for each part that said
hello; the part connects (``ControlClient``) and obeys. A channel that ends is a message too: to
the supervisor, that the part is going or gone; to the part, that the supervisor died, whereupon it
shuts down. Otherwise parts are ended by SIGTERM, which reaches also one that does not listen.

``geminga standalone`` pings its parts and sets their log level. Health, drain and faults belong
to the channel for those who do more than keep parts running: who takes one away from a cluster
that goes on asks it first to drain, and a test server makes it misbehave.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geminga_runtime.control_codec import (
    Drain,
    Drained,
    Fault,
    HealthAnswer,
    HealthRequest,
    Hello,
    Instruction,
    InstructionAnswer,
    Ping,
    Pong,
    Ready,
    SetLogLevel,
)
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_server import control_channel
from geminga_server.control_channel import Channel
from geminga_server.errors import ConfigError, ControlError
from geminga_server.logging import set_log_level
from geminga_server.readiness import announce_readiness
from geminga_server.supervision import CONTROL_SOCKET_VARIABLE, part_name

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
# Who connects and does not say who it is within this time is cut off.
HELLO_TIMEOUT_S = 5.0
# Parts and a few that just died; a fork bomb of parts is not to take the supervisor with it.
CHANNELS_MAX = 64
# A supervisor answers at once: it does not wait for what it begins.
ANSWER_TIMEOUT_S = 10.0
# Health checks of one part under way at once: a second only begins when the first hangs.
HEALTH_CHECKS_MAX = 4


class PartSession:
    """The supervisor's view of one living part."""

    def __init__(self, channel: Channel, hello: Hello) -> None:
        self._channel = channel
        self.part = hello.part
        self.pid = hello.pid
        self.version = hello.version
        self.is_silent = False
        self._ready: asyncio.Future[Mapping[str, str]] = _future()
        self._drained: asyncio.Future[None] = _future()
        self._lost: asyncio.Future[None] = _future()
        self._answers: dict[int, asyncio.Future[HealthAnswer]] = {}
        self._next_request_id = 1

    @property
    def is_open(self) -> bool:
        """Whether the part can still be told anything."""
        return not self._lost.done()

    async def wait_ready(self) -> Mapping[str, str]:
        """The part's addresses, as soon as it serves. Raises ``ControlError`` if it goes first."""
        return await asyncio.shield(self._ready)

    async def wait_lost(self) -> None:
        """Return when the channel has ended."""
        await asyncio.shield(self._lost)

    async def check_health(self, timeout_s: float) -> HealthAnswer:
        """Ask the part; no answer within ``timeout_s``, or the end of the part, is a no."""
        request_id = self._next_request_id
        self._next_request_id += 1
        answer: asyncio.Future[HealthAnswer] = _future()
        self._answers[request_id] = answer
        self._channel.send(HealthRequest(request_id))
        try:
            async with asyncio.timeout(timeout_s):
                either: set[asyncio.Future[Any]] = {answer, self._lost}
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
        """Ask the part for a sign of life; ``is_silent`` until there is one."""
        self.is_silent = True
        self._channel.send(Ping())

    async def drain(self, deadline_s: float) -> None:
        """Have the part finish what is begun. Raises ``ControlError`` if it does not in time."""
        self._channel.send(Drain(deadline_s))
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.shield(self._drained)
        except TimeoutError as error:
            raise ControlError(f"the {self.part} did not drain in {deadline_s:g} s") from error

    def set_log_level(self, level: str) -> None:
        """Tell the part to log from ``level`` on."""
        self._channel.send(SetLogLevel(level))

    def inject(self, fault: Fault) -> None:
        """Tell the part to misbehave, in tests."""
        self._channel.send(fault)

    def receive(self, message: object) -> None:
        """A message of the part. Raises ``ControlError`` for one that parts do not send."""
        self.is_silent = False
        match message:
            case Pong():
                pass
            case Ready(addresses):
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
        if not self._lost.done():
            self._lost.set_result(None)
        gone = ControlError(f"the {self.part} ended")
        for future in (self._ready, self._drained):
            if not future.done():
                future.set_exception(gone)
                future.exception()  # seen: nobody may be waiting for it

    def close(self) -> None:
        """End the channel; the part takes it for the supervisor's death."""
        self._channel.close()


OnSession = Callable[[PartSession], None]
OnInstruction = Callable[[Instruction], InstructionAnswer]


def refuse_instruction(instruction: Instruction) -> InstructionAnswer:
    """A supervisor that takes no instructions."""
    return InstructionAnswer(is_done=False, text=f"{instruction.action} is not done here")


class ControlServer(Service):
    """Listens at ``path``; ``on_session`` is called with each part that said hello, and
    ``on_instruction`` with what an operator asks for.

    A part that says hello while another of its name is connected takes its place: the older one
    is cut off, and so ends itself. Raises ``OSError`` on opening where the socket cannot be made.
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
        self._channels: dict[Channel, asyncio.TimerHandle | None] = {}
        self._sessions: dict[Channel, PartSession] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        server = await control_channel.listen(self._path, self._make_channel)
        stack.callback(self._path.unlink, missing_ok=True)
        stack.callback(self._close_channels)
        stack.callback(server.close)

    def session(self, part: str) -> PartSession | None:
        """The session of the part of that name, if it is connected."""
        return next((one for one in self._sessions.values() if one.part == part), None)

    def _make_channel(self) -> Channel:
        channel = Channel(self._receive, self._lose)
        if len(self._channels) >= CHANNELS_MAX:
            log.warning("too many control channels", extra={"channels_max": CHANNELS_MAX})
            channel.close()
            return channel
        loop = asyncio.get_running_loop()
        self._channels[channel] = loop.call_later(HELLO_TIMEOUT_S, self._give_up, channel)
        return channel

    def _give_up(self, channel: Channel) -> None:
        log.warning("control peer said no hello", extra={"timeout_s": HELLO_TIMEOUT_S})
        channel.close()

    def _receive(self, channel: Channel, message: object) -> None:
        session = self._sessions.get(channel)
        if session is not None:
            session.receive(message)
        elif isinstance(message, Hello):
            self._welcome(channel, message)
        elif isinstance(message, Instruction):
            channel.send(self._on_instruction(message))
            channel.close()
        else:
            raise ControlError(f"{type(message).__name__} came before Hello")

    def _welcome(self, channel: Channel, hello: Hello) -> None:
        timer = self._channels.get(channel)
        if timer is not None:
            timer.cancel()
            self._channels[channel] = None
        older = self.session(hello.part)
        if older is not None:
            log.warning("part replaced", extra={"served_by": older.pid, "replaced_by": hello.pid})
            older.close()
        session = self._sessions[channel] = PartSession(channel, hello)
        if older is not None:
            self._forget(older)
        self._on_session(session)

    def _forget(self, session: PartSession) -> None:
        for channel, one in list(self._sessions.items()):
            if one is session:
                del self._sessions[channel]
        session.lose()

    def _lose(self, channel: Channel) -> None:
        timer = self._channels.pop(channel, None)
        if timer is not None:
            timer.cancel()
        session = self._sessions.pop(channel, None)
        if session is not None:
            session.lose()

    def _close_channels(self) -> None:
        for channel, timer in self._channels.items():
            if timer is not None:
                timer.cancel()
            channel.close()


async def instruct(path: Path, instruction: Instruction) -> InstructionAnswer:
    """Have the supervisor that listens at ``path`` do something. Raises ``OSError`` where none
    does, ``ControlError`` where it does not answer."""
    answer: asyncio.Future[InstructionAnswer] = _future()

    def receive(_channel: Channel, message: object) -> None:
        if isinstance(message, InstructionAnswer) and not answer.done():
            answer.set_result(message)

    def lose(_channel: Channel) -> None:
        if not answer.done():
            answer.set_exception(ControlError("the supervisor ended before it answered"))

    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        channel = await control_channel.connect(path, lambda: Channel(receive, lose))
        try:
            channel.send(instruction)
            return await answer
        finally:
            channel.close()


async def _is_healthy() -> None:
    """A part without a check is healthy as long as it answers."""


async def _is_drained(_deadline_s: float) -> None:
    """A part that holds nothing back has nothing to finish."""


def _ignore_fault(fault: Fault) -> None:
    log.warning("fault not supported", extra={"fault": fault.name})


@dataclass(frozen=True, slots=True)
class PartCommands:
    """What a part does when it is told; only ``shutdown`` must be given.

    ``shutdown(reason)`` asks the part to end, because the supervisor did. ``check_health()``
    raises a ``GemingaError`` that says what does not work. ``drain(deadline_s)`` returns when
    nothing is under way.
    """

    shutdown: Callable[[str], None]
    check_health: Callable[[], Awaitable[None]] = _is_healthy
    drain: Callable[[float], Awaitable[None]] = _is_drained
    set_log_level: Callable[[str], None] = set_log_level
    inject: Callable[[Fault], None] = _ignore_fault


class ControlClient(Service):
    """The part's side: says hello on opening, then obeys ``commands``.

    Raises ``ControlError`` on opening where no supervisor listens at ``path``. When the supervisor
    goes without a word, ``commands.shutdown`` is called.
    """

    def __init__(self, path: Path, part: str, version: str, commands: PartCommands) -> None:
        super().__init__()
        self._path = path
        self._part = part
        self._version = version
        self._commands = commands
        self._channel: Channel | None = None
        self._health_checks = 0

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                self._channel = await control_channel.connect(
                    self._path, lambda: Channel(self._receive, self._lose)
                )
        except OSError as error:  # TimeoutError is one
            raise ControlError(f"no supervisor answers at {self._path}: {error}") from error
        stack.callback(self._channel.close)
        self._channel.send(Hello(self._part, os.getpid(), self._version))

    def ready(self, addresses: Mapping[str, str]) -> None:
        """Tell the supervisor that this part serves, and where, by name."""
        self._send(Ready(addresses))

    def _send(self, message: object) -> None:
        assert self._channel is not None, "the control client is not open"
        self._channel.send(message)

    def _receive(self, _channel: Channel, message: object) -> None:
        match message:
            case HealthRequest(request_id):
                self.spawn(self._check_health(request_id), name="health check")
            case Ping():
                self._send(Pong())
            case Drain(deadline_s):
                self.spawn(self._drain(deadline_s), name="drain")
            case SetLogLevel(level):
                self._set_log_level(level)
            case Fault():
                self._commands.inject(message)
            case _:
                raise ControlError(f"a supervisor sent {type(message).__name__}")

    async def _check_health(self, request_id: int) -> None:
        if self._health_checks >= HEALTH_CHECKS_MAX:
            reason = f"{self._health_checks} health checks hang already"
            self._send(HealthAnswer(request_id, is_healthy=False, reason=reason))
            return
        self._health_checks += 1
        try:
            await self._commands.check_health()
            self._send(HealthAnswer(request_id, is_healthy=True))
        except GemingaError as error:
            self._send(HealthAnswer(request_id, is_healthy=False, reason=str(error)[:1000]))
        finally:
            self._health_checks -= 1

    async def _drain(self, deadline_s: float) -> None:
        await self._commands.drain(deadline_s)
        self._send(Drained())

    def _set_log_level(self, level: str) -> None:
        try:
            self._commands.set_log_level(level)
        except ConfigError as error:
            log.warning("log level not changed", extra={"reason": str(error)})

    def _lose(self, _channel: Channel) -> None:
        if not self._is_closing:
            self._commands.shutdown("the supervisor is gone")


@asynccontextmanager
async def obeying_supervisor(
    kind: str, version: str, commands: PartCommands, addresses: Mapping[str, str]
) -> AsyncGenerator[None]:
    """Tell the supervisor, if there is one, that a part of this ``kind`` serves at ``addresses``,
    and obey it meanwhile; without one a service manager is told. Raises ``ControlError`` as
    ``ControlClient`` does."""
    socket_path = os.environ.get(CONTROL_SOCKET_VARIABLE)
    if not socket_path:
        announce_readiness(" ".join(addresses.values()))
        yield
        return
    async with ControlClient(Path(socket_path), part_name(kind), version, commands) as control:
        control.ready(addresses)
        yield


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()
