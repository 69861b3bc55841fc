"""A bookie as a process: config, logs, ZooKeeper, disks, the bookie, its metrics and admin.

``serve`` is the order of starting. What it opens last it closes first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from random import Random

from geminga_autorecovery.autorecovery import AutoRecovery
from geminga_autorecovery.metrics import AutoRecoveryMetrics
from geminga_bookie.admin.access import AdminAccess
from geminga_bookie.admin.app import ROUTINE_PATHS, BookieAdmin
from geminga_bookie.bookie import Bookie
from geminga_bookie.config import BookieConfig
from geminga_bookie.disks.directories import require_usable
from geminga_bookie.errors import BookieError
from geminga_bookie.index.rocks_store import INDEX_DIRECTORY, open_index
from geminga_bookie.metrics import BookieMetrics
from geminga_protocol.records.ledgers.ledger_metadata import INSTANCE_ID_PATH
from geminga_runtime.clock import Clock, SystemClock
from geminga_runtime.coordination import Coordination
from geminga_runtime.disk import Disk
from geminga_runtime.file_disk import FileDisk
from geminga_runtime.network import AsyncioNetwork
from geminga_server.authorization import Resource
from geminga_server.config import settings_of
from geminga_server.config.loading import load_config
from geminga_server.connection_limits import connections_allowed
from geminga_server.control.client import PartCommands, obeying_supervisor
from geminga_server.control.supervision import part_name
from geminga_server.directories import DirectoryLock
from geminga_server.http.server import AsgiApp, HttpServer
from geminga_server.logging import configure_logging
from geminga_server.memory import tune_memory
from geminga_server.metrics import LoopLag, PartMetrics, part_app
from geminga_server.open_files import open_files
from geminga_server.ports import free_port, require_distinct
from geminga_server.run import StopRequest, run_part
from geminga_server.tls.renewal import accepting_tls
from geminga_server.zookeeper.startup_wait import wait_for_node

log = logging.getLogger(__name__)

PART = "bookie"
# Files that are open besides clients' connections: 64 entry logs and 64 files of the index at most,
# 31 before the first entry, and what journals, ledger directories and auto-recovery add.
OWN_FILES = 192


def main(file: Path | None, flags: Mapping[str, object]) -> int:
    """Run a bookie until it is told to stop; return the process's exit code."""
    config = load_config(BookieConfig, PART, file=file, flags=flags)
    require_distinct({"--port": config.port, "--http-port": config.http_port})
    configure_logging(part_name(PART), level=config.log_level, is_json=config.log_json)
    if not config.sync:
        log.warning("nothing is synced: a power cut loses acknowledged entries")
    return run_part(lambda stop: serve(config, stop))


async def serve(config: BookieConfig, stop: StopRequest) -> None:
    """Open everything, announce it, and wait for the order to stop."""
    tune_memory()
    index_directory = config.data_directory / INDEX_DIRECTORY
    # What cannot work is refused before anything is written or registered.
    require_usable(config.journals, config.ledgers, index_directory)
    for port in (config.port, config.http_port):
        free_port(config.bind_address, port)
    clock = SystemClock()
    # How many connections there may be follows from the limit of open files.
    files = open_files(own_min=OWN_FILES)
    config = replace(config, connections=connections_allowed(config.connections, files))
    async with AsyncExitStack() as stack:
        # Held to the very end: no second process may use the directories, or the bookie's id.
        stack.callback(DirectoryLock(config.data_directory, clock).close)
        zookeeper = await stack.enter_async_context(config.zookeeper_client(clock, stop))
        await wait_for_node(zookeeper, INSTANCE_ID_PATH, config.zookeeper_connect_timeout_s)
        tls = await accepting_tls(config.tls, stack)
        # Opened before the bookie, closed after it: the bookie's last checkpoint flushes it.
        index = open_index(index_directory)
        stack.callback(index.close)
        bookie = Bookie(
            config,
            journal_disks=_disks(stack, config, config.journals),
            ledger_disks=_disks(stack, config, config.ledgers),
            index=index,
            network=AsyncioNetwork(),
            coordination=zookeeper,
            clock=clock,
            tls=tls,
        )
        await stack.enter_async_context(bookie)
        metrics = PartMetrics(PART)
        metrics.collectors.append(BookieMetrics(bookie).collect)
        # Opened after the bookie, whose id it has in elections and locks, and before HTTP, which
        # shows its metrics.
        if config.auto_recovery_enabled:
            daemon = auto_recovery(config, bookie.bookie_id, zookeeper, clock)
            await stack.enter_async_context(daemon)
            metrics.collectors.append(AutoRecoveryMetrics(daemon).collect)
        await stack.enter_async_context(LoopLag(metrics))
        access = await stack.enter_async_context(admin_access(config, bookie, zookeeper, clock))
        http = await stack.enter_async_context(
            HttpServer(
                http_app(bookie, metrics, access),
                config.bind_address,
                config.http_port,
                clock=clock,
                connections_max=files.http,
                metrics=metrics,
                routine_paths=ROUTINE_PATHS,
            )
        )
        # Only now is the HTTP port known: the registration is written once more with it.
        bookie.tell_http(http.port)
        await announce(stack, config, bookie, http.port, stop)
        await wait_for_end(bookie, stop)


def auto_recovery(
    config: BookieConfig, bookie_id: str, coordination: Coordination, clock: Clock
) -> AutoRecovery:
    """Make the auto-recovery that runs in the bookie's process."""
    return AutoRecovery(
        bookie_id,
        coordination=coordination,
        network=AsyncioNetwork(),
        clock=clock,
        random=Random(),  # noqa: S311 - jitter and the order of work, no secrets
        config=config.auto_recovery,
    )


def admin_access(
    config: BookieConfig, bookie: Bookie, coordination: Coordination, clock: Clock
) -> AdminAccess:
    """Make what the HTTP admin works with."""
    index_directory = config.data_directory / INDEX_DIRECTORY
    return AdminAccess(
        bookie,
        coordination=coordination,
        network=AsyncioNetwork(),
        clock=clock,
        random=Random(),  # noqa: S311 - jitter and the order of work, no secrets
        index_files=lambda: sorted(path.name for path in index_directory.iterdir()),
        configuration=configuration_of(config),
    )


def http_app(bookie: Bookie, metrics: PartMetrics, access: AdminAccess) -> AsgiApp:
    """Make what the bookie serves over HTTP: admin, metrics, health."""
    resource = Resource("cluster", PART)
    own = part_app(metrics, check_health=lambda: check_health(bookie), resource=resource)
    return BookieAdmin(access, own, resource=resource)


def configuration_of(config: BookieConfig) -> dict[str, str]:
    """The settings as text, by name; a list is written ``a,b``."""
    values = {name: each.value_in(config) for name, each in settings_of(BookieConfig).items()}
    return {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, value in values.items()
    }


async def wait_for_end(bookie: Bookie, stop: StopRequest) -> None:
    """Return when the bookie is told to stop.

    Raises ``BookieError`` when it can take no more adds until it is started again. The process ends
    then, as upstream's do, so that a supervisor starts a new one.
    """
    # Both are tasks of the bookie, which cancels the one that is left when it closes.
    asked = bookie.spawn(stop.wait(), name="stop request")
    failed = bookie.spawn(bookie.failed.wait(), name="failure")
    await asyncio.wait({asked, failed}, return_when=asyncio.FIRST_COMPLETED)
    if not asked.done():
        raise BookieError(f"bookie {bookie.bookie_id} cannot go on: a journal failed; see its log")


def _disks(stack: AsyncExitStack, config: BookieConfig, paths: Sequence[Path]) -> list[Disk]:
    disks: list[Disk] = []
    for path in paths:
        disk = FileDisk(path, is_synced=config.sync)
        stack.callback(disk.close)
        disks.append(disk)
    return disks


async def check_health(bookie: Bookie) -> None:
    """Raise ``BookieError`` while the bookie takes no adds."""
    if bookie.storage.is_read_only:
        raise BookieError(f"bookie {bookie.bookie_id} is read-only; its log says why")


async def announce(
    stack: AsyncExitStack,
    config: BookieConfig,
    bookie: Bookie,
    http_port: int,
    stop: StopRequest,
) -> None:
    """Report to the supervisor, if there is one, that the bookie serves; obey it from then on."""
    host = config.advertised_host
    addresses = {
        "bookie": f"{host}:{bookie.port}",
        "metrics": f"http://{host}:{http_port}/metrics/",
    }
    commands = PartCommands(shutdown=stop.ask, check_health=lambda: check_health(bookie))
    await stack.enter_async_context(
        obeying_supervisor(PART, version("geminga"), commands, addresses)
    )
