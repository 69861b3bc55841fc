"""Several clusters on one machine that know each other: ``geminga cluster up --geo east,west``.

Each is a ``geminga cluster up`` of its own, with its own supervisor, in the folder of its name
below the data directory: an operation on one does not affect the others. This process starts them,
registers each at all the others, and stops them when it ends. With ``--shared-configuration`` it
starts one more ZooKeeper, the configuration store of all of them, in which each registers itself.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from geminga_cli.errors import StartFailed
from geminga_cli.ports import reserve
from geminga_cli.supervisor.settings import LOCALHOST, ClusterSettings
from geminga_server.http.rest_calls import HttpCalls, RestCall
from geminga_server.run import stop_signals

READY = "READY"
# The distance between the ports of one cluster and those of the next.
PORTS_APART = 100
# The folder of the ZooKeeper that the clusters share.
STORE = "configuration-store"
RESTART_AFTER_S = 1.0
# A supervisor that is asked to stop does so within 15 s, part by part.
STOP_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Member:
    """One cluster: its supervisor, and where clients connect once it is ready."""

    name: str
    process: asyncio.subprocess.Process
    service_url: str = ""
    web_service_url: str = ""


def run(settings: ClusterSettings, arguments: Sequence[str]) -> int:
    """Run the clusters ``settings.geo``, each with these ``arguments``; returns the exit code.

    Raises ``StartFailed``.
    """
    return asyncio.run(_run(settings, arguments))


async def _run(settings: ClusterSettings, arguments: Sequence[str]) -> int:
    async with AsyncExitStack() as stack:
        if settings.shared_configuration:
            # The store opens first, so it closes last: brokers need it until they have stopped.
            store = await stack.enter_async_context(_shared_store(settings))
            arguments = [*arguments, "--configuration-store", store]
        # Stage 1: start all of them. They start at the same time, each with ports of its own.
        members: list[Member] = []
        # Before the first is started: what fails half-way stops those that were.
        stack.push_async_callback(_stop, members)
        for index, name in enumerate(settings.geo):
            process = await _command("cluster", "up", *options_of(settings, arguments, index))
            members.append(Member(name, process))
        # Stage 2: wait until all are ready, or until a stop is asked for.
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in stop_signals(signal.SIGHUP):
            loop.add_signal_handler(number, stopped.set)
        # Whatever comes first: a stop while clusters still start must not wait for them.
        stopping: asyncio.Task[object] = asyncio.create_task(stopped.wait())
        is_shared = settings.shared_configuration
        ready: asyncio.Task[object] = asyncio.create_task(_make_ready(members, is_shared=is_shared))
        await asyncio.wait({stopping, ready}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()  # raises what failed
            print(ready_line(members), flush=True)
            ended: asyncio.Future[Any] = asyncio.gather(*[each.process.wait() for each in members])
            # One cluster that ends leaves the others running; when all have ended there is nothing
            # to keep.
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            # Otherwise asyncio reports an error that was never looked at.
            with suppress(asyncio.CancelledError):
                await ended
        # Stage 3: the stack stops the members, then the store.
        ready.cancel()
        stopping.cancel()
    return 0


def options_of(settings: ClusterSettings, arguments: Sequence[str], index: int) -> list[str]:
    """The options of one cluster: ``arguments``, then what differs between the clusters."""
    name = settings.geo[index]
    ports = {
        "--broker-port": settings.broker_port,
        "--web-port": settings.web_port,
        "--bookie-port": settings.bookie_port,
        "--zookeeper-port": settings.zookeeper_port,
    }
    # With 100 ports between clusters, each has room for PARTS_MAX parts of a kind that take ports
    # in a row.
    # Of --geo east,west by default, with the store that they share:
    #
    #     east  6650  8080  3181  2181
    #     west  6750  8180  3281  2281
    #     configuration-store     2381
    own = {option: port + index * PORTS_APART if port else 0 for option, port in ports.items()}
    return [
        *arguments,
        # The settings of the whole are overruled: the file and the environment reach every member
        # too.
        *("--geo", "", "--no-shared-configuration", "--cluster", name, "--stop-with-input"),
        *("--data-directory", str(settings.data_directory / name)),
        *(word for option, port in own.items() for word in (option, str(port))),
    ]


@asynccontextmanager
async def _shared_store(settings: ClusterSettings) -> AsyncGenerator[str]:
    """Run a ZooKeeper for the configuration of all clusters; its address.

    It may not be ready yet: its clients wait for it. Raises ``UnusablePort``.
    """
    wanted = settings.zookeeper_port
    # Behind the last cluster, so that adding a cluster at the end moves it, and no cluster.
    port = wanted + len(settings.geo) * PORTS_APART if wanted else 0
    # Held as long as the store runs: between two lives of it no other program takes the port, which
    # all brokers have in their options.
    with reserve(LOCALHOST, port, "--zookeeper-port") as reserved:
        options = store_options(settings, reserved.port)

        async def keep_running() -> None:
            while True:
                process = await _command("zookeeper", *options, output=asyncio.subprocess.DEVNULL)
                try:
                    await process.wait()
                finally:
                    # Cancelled while it runs: this is the end of the clusters.
                    if process.returncode is None:
                        process.terminate()
                        await process.wait()
                await asyncio.sleep(RESTART_AFTER_S)

        # ``geminga zookeeper`` ends with its Java: this loop is what starts both again.
        running = asyncio.create_task(keep_running())
        try:
            yield f"{LOCALHOST}:{reserved.port}"
        finally:
            running.cancel()
            await asyncio.wait({running})


def store_options(settings: ClusterSettings, port: int) -> list[str]:
    """The options of the shared ZooKeeper."""
    return [
        *("--data-directory", str(settings.data_directory / STORE), "--stop-with-input"),
        *("--port", str(port), "--metrics-port", "0", "--log-level", settings.log_level),
        *(() if settings.sync else ("--no-sync",)),
        *(("--log-json",) if settings.log_json else ()),
    ]


async def _command(
    *words: str, output: int = asyncio.subprocess.PIPE
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "geminga_cli", *words),
        # The pipe closes when this process ends, however it ends; --stop-with-input sees it.
        stdin=asyncio.subprocess.PIPE,
        stdout=output,
        # Ctrl-C reaches this process alone, which then stops all of them.
        start_new_session=True,
    )


async def _make_ready(members: Sequence[Member], *, is_shared: bool) -> None:
    """Return when all clusters are ready and know each other. Raises ``StartFailed``.

    Clusters whose configuration ``is_shared`` know each other by what they share.
    """
    await asyncio.gather(*map(_wait_ready, members))
    if is_shared:
        return
    calls = HttpCalls()
    for member in members:
        for other in members:
            if other is not member:
                await _register(calls, other, at=member)


async def _wait_ready(member: Member) -> None:
    assert member.process.stdout is not None
    # Reading goes no further than READY: a member prints little after it, which fits into the pipe.
    # Where the output ends before READY, the member has ended.
    async for line in member.process.stdout:
        words = line.decode().split()
        if words[:1] == [READY]:
            _, member.service_url, member.web_service_url = words
            return
    raise StartFailed(member.name, "its own words are above")


async def _register(calls: HttpCalls, other: Member, *, at: Member) -> None:
    """Tell the cluster ``at`` where ``other`` is now."""
    body = json.dumps(record_of(other)).encode()
    # PUT creates the record; where it exists, from an earlier start on other ports, POST updates
    # it.
    for method in ("PUT", "POST"):
        url = f"{at.web_service_url}/admin/v2/clusters/{other.name}"
        answer = await calls.call(RestCall(method, url, {"Content-Type": "application/json"}, body))
        if answer.is_success:
            return
    raise StartFailed(at.name, f"it does not accept {other.name} as a cluster: {answer.reason}")


def record_of(member: Member) -> Mapping[str, object]:
    """The addresses at which other clusters reach this one."""
    # Fields of Pulsar's ``ClusterData``. The protocol's URL is the one that replicators use.
    return {"serviceUrl": member.web_service_url, "brokerServiceUrl": member.service_url}


def ready_line(members: Sequence[Member]) -> str:
    """The line that tells programs that all clusters are ready: each name with both URLs."""
    each = (f"{one.name} {one.service_url} {one.web_service_url}" for one in members)
    return " ".join((READY, *each))


async def _stop(members: Sequence[Member]) -> None:
    """Stop all clusters at the same time, each part by part."""
    running = [member.process for member in members if member.process.returncode is None]
    # SIGTERM to all before any is waited for.
    for process in running:
        process.terminate()
    # Each member has the deadlines of its own parts; this one is for a member that does not keep
    # them. What it leaves behind, the kernel ends with it (``process``).
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await asyncio.gather(*(process.wait() for process in running))
    except TimeoutError:
        for process in running:
            if process.returncode is None:
                process.kill()
