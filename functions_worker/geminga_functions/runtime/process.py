"""An instance in a process of its own: another interpreter, limits, and an end that is certain.

The process is ``python -m geminga_functions.instance DESCRIPTOR PARENT``: the descriptor of its
end of a Unix socket pair, over which it is told what to run, and the process id of the worker. It
leads a session, and with it a process group, so that what a function has started ends with it.

These end it: the worker's order; the end of the worker, which it sees as the end of the channel, or
which the kernel tells it; the end of its lease. Nothing that a function does keeps it alive: the
last word is SIGKILL to the whole group.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from geminga_functions.names import InstanceName
from geminga_functions.runtime.channel import InstanceChannel
from geminga_functions.runtime.output import OutputFile
from geminga_functions.runtime.running import Ending, Order
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

INSTANCE = "geminga_functions.instance"
# What the interpreter and the client library allocate themselves, beside what a function may.
OWN_BYTES = 128 * 1024 * 1024
# An instance that fills the machine's memory is killed by the kernel before its worker is.
OOM_SCORE = 500
# How long the ends of an instance's process, of its output and of its channel may lie apart. What
# it started and what left its process group may hold the output open for ever; an instance that
# exits closes its channel a moment before.
ENDS_APART_S = 1.0
# Who sent the signal is not known: the kernel in most cases.
KILLED = (
    ", as code is that keeps the interpreter to itself for longer than the worker's lease, or "
    "closes all files, and as processes are where memory ends"
)
# What the environment of a worker tells the worker alone: settings, and among them secrets.
WORKERS_VARIABLES = "GEMINGA_"


class ProcessRunner(Service):
    """Starts instances as processes. ``environment`` is the worker's; ``output_of`` makes the file
    for what an instance writes; ``program`` is what the interpreter is told to run."""

    def __init__(
        self,
        environment: Mapping[str, str],
        output_of: Callable[[InstanceName], OutputFile],
        program: Sequence[str] = ("-m", INSTANCE),
    ) -> None:
        super().__init__()
        # Unbuffered: what a function prints is there to be read when it is killed.
        self._environment = {**without_settings(environment), "PYTHONUNBUFFERED": "1"}
        self._output_of = output_of
        self._program = program
        # Descriptors that instances keep open: the lock of the worker's directory, which no worker
        # after this one takes while an instance still works in it.
        self.inherited: tuple[int, ...] = ()

    async def start(self, order: Order) -> ProcessInstance:
        """As ``InstanceRunner.start``."""
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(str(order.python), *self._program, str(theirs.fileno()), str(os.getpid())),
                stdin=DEVNULL,
                # Not asyncio's PIPE: a process of that kind has exited only when its pipe is at
                # its end, which something that the function started may hold open for ever.
                stdout=write_end,
                stderr=STDOUT,
                env=self._environment,
                cwd=order.start.state_directory,
                pass_fds=(theirs.fileno(), *self.inherited),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(read_end)
            raise
        finally:
            theirs.close()
            os.close(write_end)
        instance = ProcessInstance(order.name, process, self._output_of(order.name))
        # Before it is told what to run: no code of the function's runs without limits.
        confine(process.pid, order.memory_bytes)
        # The service ends this task where the worker has no time to end its instances in order.
        self.spawn(instance.follow(read_end), name=f"process of {order.name}")
        try:
            await instance.channel.begin(ours, order)
        except BaseException:
            instance.kill()
            raise
        return instance


class ProcessInstance:
    """``RunningInstance`` in a process."""

    def __init__(self, name: InstanceName, process: Process, output: OutputFile) -> None:
        self.pid: int | None = process.pid
        self.channel = InstanceChannel(name)
        self.started = self.channel.started
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._process = process
        self._output = output
        self._is_stopping = False
        self._is_reaped = False

    def extend_lease(self, until_s: float) -> None:
        """As ``RunningInstance.extend_lease``."""
        self.channel.extend_lease(until_s)

    async def status(self, timeout_s: float) -> str | None:
        """As ``RunningInstance.status``."""
        return await self.channel.status(timeout_s)

    async def stop(self, timeout_s: float) -> None:
        """As ``RunningInstance.stop``."""
        self._is_stopping = True
        self.channel.stop(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self.ended)
        except TimeoutError:
            log.warning("instance does not stop and is killed", extra={"pid": self.pid})
        finally:
            self.kill()
        await asyncio.shield(self.ended)

    def kill(self) -> None:
        """As ``RunningInstance.kill``."""
        self._is_stopping = True
        self._kill_unless_reaped()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def follow(self, read_end: int) -> None:
        """See the process through to its end, whatever that is, and say how it was. Its output
        comes through the pipe ``read_end``."""
        ending = Ending("the worker did not follow the process to its end")
        try:
            async with asyncio.TaskGroup() as group:
                copying = group.create_task(self._copy(read_end))
                lost = group.create_task(self._kill_without_channel())
                code = await self._exit_code()
                # Its last words may still be in the pipe and in the socket.
                await asyncio.wait([copying, lost], timeout=ENDS_APART_S)
                copying.cancel()
                lost.cancel()
            ending = self._ending(code)
        finally:
            self.channel.close()
            self.ended.set_result(ending)

    async def _copy(self, read_end: int) -> None:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        pipe = os.fdopen(read_end, "rb", 0)  # closed with the transport
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            await self._output.copy(reader)
        finally:
            transport.close()

    async def _kill_without_channel(self) -> None:
        # An instance without a channel can neither learn that its lease goes on nor be asked to
        # stop. Most that lose it are exiting, and their exit code says more than a SIGKILL would.
        await self.channel.is_lost.wait()
        asyncio.get_running_loop().call_later(ENDS_APART_S, self._kill_unless_reaped)

    async def _exit_code(self) -> int:
        """How the process exited, once it has; then nothing of its group runs any more."""
        try:
            return await self._process.wait()
        except asyncio.CancelledError:
            self._kill_group()
            await self._process.wait()  # the kernel's word is quick, and reaps the process
            raise
        finally:
            # At once: while children of it live, the number of its group is given to no other.
            self._is_reaped = True
            self._kill_group()

    def _kill_unless_reaped(self) -> None:
        # The number of a process that was reaped may soon be another's.
        if not self._is_reaped:
            self._kill_group()

    def _ending(self, code: int) -> Ending:
        if self.channel.failed is not None:
            return self.channel.failed
        if self._is_stopping:
            return Ending()
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
        if code == -signal.SIGKILL:
            how += KILLED
        tail = self._output.tail
        trace = f"the process of the instance {how}"
        return Ending(
            f"{trace}; the last that it wrote:\n{tail}" if tail else trace, is_user_error=True
        )


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a worker that code of users may see."""
    return {
        name: value for name, value in environment.items() if not name.startswith(WORKERS_VARIABLES)
    }


def signal_name(number: int) -> str:
    """``SIGKILL``; ``signal 34`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def confine(pid: int, memory_bytes: int) -> None:
    """Limit what a process may take, and let the kernel choose it first when memory ends.

    Data, not address space: what threads and allocators only reserve is no memory that is used.
    Systems without these calls have no limits.
    """
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(OOM_SCORE), encoding="ascii")
    if not hasattr(resource, "prlimit"):
        return
    with suppress(ProcessLookupError):  # it has ended already
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        if memory_bytes:
            limit = memory_bytes + OWN_BYTES
            resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))


def end_orphans(lock: Path) -> int:
    """Kill the instances of a worker that was killed, and what they forked; how many there were.

    The kernel kills an instance with its worker, but not what the instance forked. All of them hold
    ``lock``, the lock of the worker's directory, open; the file names the worker. Nothing is killed
    while that one runs. Blocks; knows orphans on Linux alone.
    """
    owner = lock.read_text().strip() if lock.exists() else ""
    holders = [each for each in Path("/proc").glob("[0-9]*") if _holds(each, lock)]
    if owner != str(os.getpid()) and any(each.name == owner for each in holders):
        return 0
    # Not another worker, which may just be waiting for the lock.
    orphans = [each for each in holders if INSTANCE.encode() in _words_of(each)]
    for each in orphans:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(int(each.name), signal.SIGKILL)
    return len(orphans)


def _holds(process: Path, file: Path) -> bool:
    try:
        return any(each.readlink() == file for each in (process / "fd").iterdir())
    except OSError:  # it has ended, or is another user's
        return False


def _words_of(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
