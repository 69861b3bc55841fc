"""An instance in a process of its own: with an interpreter and limits of its own, and a sure end.

The process is ``python -m geminga_functions.instance DESCRIPTOR PARENT``: the descriptor of its
end of a Unix socket pair, over which the worker sends what to run, and the process id of the
worker. It leads a session, and with it a process group, so that what a function has started ends
with it.

An instance ends when the worker stops it; when the worker ends, which it notices by the end of the
channel, or the kernel by the end of its parent; and when its lease ends. A function cannot prevent
that: in the end the whole group gets a SIGKILL.
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
from geminga_functions.runtime.channel import RunningInstance
from geminga_functions.runtime.output import OutputFile
from geminga_functions.runtime.runner import Ending, Order
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

INSTANCE = "geminga_functions.instance"
# What the interpreter and the client library allocate; a function may allocate its limit besides.
OWN_BYTES = 128 * 1024 * 1024
# Where the memory of the machine ends, the kernel kills an instance before its worker. Of proc(5):
# from -1000 to 1000, and added to what the kernel computes from the memory in use.
OOM_SCORE = 500
# How long the ends of an instance's process, of its output and of its channel may lie apart. An
# instance that exits closes its channel a moment before; a process that the function started, and
# that left the group, may hold the output open without end.
ENDS_APART_S = 1.0
# Likely reasons for a SIGKILL, whose sender is not known; in most cases it is the kernel.
KILLED = (
    ", as code is that keeps the interpreter to itself for longer than the worker's lease, or "
    "closes all files, and as processes are where memory ends"
)
# Variables of the worker's environment that are meant for it alone: its settings may be secrets.
WORKERS_VARIABLES = "GEMINGA_"


# What connects a worker with the process of an instance:
#
#   worker                                    process
#   ours      <===== socket pair ======>      theirs, whose number is an argument
#   read_end  <===== pipe =============       standard output and error
#   lock      ------ inherited ------->       held open also by what the process forks
class ProcessRunner(Service):
    """Starts instances as processes.

    ``environment`` has the worker's environment variables; ``output_of`` creates the output file of
    an instance; ``program`` are the arguments of the interpreter.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        output_of: Callable[[InstanceName], OutputFile],
        program: Sequence[str] = ("-m", INSTANCE),
    ) -> None:
        super().__init__()
        # Unbuffered: what a function has printed is not lost when it is killed.
        self._environment = {**without_settings(environment), "PYTHONUNBUFFERED": "1"}
        self._output_of = output_of
        self._program = program
        # Descriptors that instances keep open: the lock of the worker's directory. The next worker
        # cannot take it while an instance still works in the directory.
        self.inherited: tuple[int, ...] = ()

    async def start(self, order: Order) -> ProcessInstance:
        """Start an instance. Raises ``OSError`` if the machine cannot."""
        # The instance inherits its end, so there is no address that other programs could connect
        # to.
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(str(order.python), *self._program, str(theirs.fileno()), str(os.getpid())),
                stdin=DEVNULL,
                # Not asyncio's PIPE: with one, asyncio waits for the end of the pipe before it
                # reports the exit, and a process that the function started may keep the pipe open.
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
            # The worker's copies are closed in any case: as long as one is open, the end of the
            # instance would not end the channel, nor the output.
            theirs.close()
            os.close(write_end)
        instance = ProcessInstance(order.name, process, self._output_of(order.name))
        # Before the process is sent what to run: no code of the function runs without limits.
        confine(process.pid, order.memory_bytes)
        # The task belongs to the service, which cancels it, and so kills the process, if the worker
        # has no time to stop its instances in order.
        self.spawn(instance.follow(read_end), name=f"process of {order.name}")
        try:
            # ``follow`` runs already: if this fails, it sees the exit of the killed process, and
            # ends the channel.
            await instance.begin(ours, order)
        except BaseException:
            instance.kill()
            raise
        return instance


class ProcessInstance(RunningInstance):
    """An instance in a process."""

    def __init__(self, name: InstanceName, process: Process, output: OutputFile) -> None:
        super().__init__(name, process.pid, {"pid": process.pid})
        self._process = process
        self._output = output
        # Whether the process id may belong to another process by now.
        self._is_reaped = False

    def kill(self) -> None:
        """Send a SIGKILL to the process, and to all that it started."""
        self._is_stopping = True
        self._kill_unless_reaped()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def follow(self, read_end: int) -> None:
        """Copy the output from the pipe ``read_end``, wait for the exit, then set ``ended``."""
        ending = Ending("the worker did not follow the process to its end")
        try:
            async with asyncio.TaskGroup() as group:
                copying = group.create_task(self._copy(read_end))
                lost = group.create_task(self._kill_without_channel())
                code = await self._exit_code()
                # The last output and the last message may still be in the pipe and the socket.
                await asyncio.wait([copying, lost], timeout=ENDS_APART_S)
                copying.cancel()
                lost.cancel()
            # What the instance said of itself goes before what its exit looks like; an end that was
            # asked for is no failure, whatever the code.
            if self._failed is not None:
                ending = self._failed
            elif self._is_stopping:
                ending = Ending()
            else:
                trace = f"the process of the instance {exit_text(code)}"
                if tail := self._output.tail:
                    trace += f"; the last that it wrote:\n{tail}"
                ending = Ending(trace, is_user_error=True)
        finally:
            self._channel.close()
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
        # An instance without a channel can neither get another lease nor be stopped. Most are just
        # exiting when it ends, and their exit code says more than that of a SIGKILL, so they are
        # given some time.
        await self._is_lost.wait()
        asyncio.get_running_loop().call_later(ENDS_APART_S, self._kill_unless_reaped)

    async def _exit_code(self) -> int:
        """Wait for the exit of the process, and kill what is left of its group.

        If this is cancelled, the process is killed at once.
        """
        try:
            return await self._process.wait()
        except asyncio.CancelledError:
            self._kill_group()
            await self._process.wait()  # it takes a moment, and reaps the process
            raise
        finally:
            # At once: as long as processes of the group live, the kernel gives its number to no
            # other group.
            self._is_reaped = True
            self._kill_group()

    def _kill_unless_reaped(self) -> None:
        # The number of a process that was reaped may soon belong to another.
        if not self._is_reaped:
            self._kill_group()


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a worker that code of users may see."""
    return {
        name: value for name, value in environment.items() if not name.startswith(WORKERS_VARIABLES)
    }


def exit_text(code: int) -> str:
    """How a process ended, by its exit code, which is negative after a signal."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal, which has no name
        name = f"signal {-code}"
    return f"was killed by {name}" + (KILLED if code == -signal.SIGKILL else "")


def confine(pid: int, memory_bytes: int) -> None:
    """Limit the memory of a process, and let the kernel kill it first where memory ends.

    The limit is on data, not on address space: threads and allocators reserve addresses that they
    never use. Systems without these calls have no limits.
    """
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(OOM_SCORE), encoding="ascii")
    if not hasattr(resource, "prlimit"):
        return
    with suppress(ProcessLookupError):  # it has ended already
        # A core dump would put a function's memory, secrets included, on the worker's disk.
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        if memory_bytes:
            # The soft and the hard limit are the same: the function cannot raise it again.
            limit = memory_bytes + OWN_BYTES
            resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))


def end_orphans(lock: Path) -> int:
    """Kill what instances of an earlier worker have left running; returns how many processes.

    When a worker is killed, the kernel kills its instances, but not what they have forked. All of
    them hold ``lock`` open, the lock of the worker's directory, a file that has the worker's
    process id in it. Nothing is killed while that worker runs. Blocks; finds orphans on Linux only.
    """
    owner = lock.read_text().strip() if lock.exists() else ""
    # Not the process ids that an earlier worker knew: it may have been killed without writing
    # anything, and ids are used again. Only what that worker has started can have the file open.
    holders = [each for each in Path("/proc").glob("[0-9]*") if _holds(each, lock)]
    # The lock's file keeps the id of its last holder. A process that has this id and does not hold
    # the file is another one.
    if owner != str(os.getpid()) and any(each.name == owner for each in holders):
        return 0
    orphans = 0
    for each in holders:
        with suppress(OSError):  # it has ended meanwhile, or belongs to another user
            # Only instances: another holder of the file may be a worker that waits for the lock.
            if INSTANCE.encode() in (each / "cmdline").read_bytes().split(b"\0"):
                # Counted before: one that ends at this moment was an orphan, too.
                orphans += 1
                os.kill(int(each.name), signal.SIGKILL)
    return orphans


def _holds(process: Path, file: Path) -> bool:
    try:
        return any(each.readlink() == file for each in (process / "fd").iterdir())
    except OSError:  # it has ended, or belongs to another user
        return False
