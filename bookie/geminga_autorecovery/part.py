"""Auto-recovery as a process of its own, without a bookie: config, ZooKeeper, daemon, metrics.

Any number may run beside the daemons in bookies, or instead of them. It keeps nothing on disk.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

from geminga_autorecovery.autorecovery import AutoRecovery
from geminga_autorecovery.config import AutoRecoveryPartConfig
from geminga_autorecovery.errors import NoZooKeeper
from geminga_autorecovery.metrics import AutoRecoveryMetrics
from geminga_protocol.records.ledgers.ledger_metadata import INSTANCE_ID_PATH
from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import SessionState
from geminga_runtime.network import AsyncioNetwork
from geminga_server.authorization import Resource
from geminga_server.config.loading import load_config
from geminga_server.control.supervision import part_name
from geminga_server.http.server import HttpServer
from geminga_server.logging import configure_logging
from geminga_server.memory import tune_memory
from geminga_server.metrics import LoopLag, PartMetrics, part_app
from geminga_server.open_files import open_files
from geminga_server.ports import free_port
from geminga_server.run import StopRequest, run_part
from geminga_server.zookeeper.startup_wait import wait_for_node

log = logging.getLogger(__name__)

PART = "autorecovery"
# Characters that a bookie's id may not have: the name stands in its place in votes and locks.
_STRANGE = re.compile(r"[^a-zA-Z0-9.\-]")


def main(file: Path | None, flags: Mapping[str, object]) -> int:
    """Run auto-recovery until the process is asked to stop; returns its exit code."""
    config = load_config(AutoRecoveryPartConfig, PART, file=file, flags=flags)
    configure_logging(part_name(PART), level=config.log_level, is_json=config.log_json)
    return run_part(lambda stop: serve(config, stop))


async def serve(config: AutoRecoveryPartConfig, stop: StopRequest) -> None:
    """Open everything, log it, and wait for the request to stop."""
    tune_memory()
    free_port(config.bind_address, config.http_port)
    clock = SystemClock()
    files = open_files()
    async with AsyncExitStack() as stack:
        zookeeper = await stack.enter_async_context(config.zookeeper_client(clock, stop))
        # It appears when the cluster is initialized; before that there is nothing to recover.
        await wait_for_node(zookeeper, INSTANCE_ID_PATH, config.zookeeper_connect_timeout_s)
        # Unlike a bookie's id it need not be kept: votes and locks are ephemeral.
        name = config.recovery_id or made_up_id(socket.gethostname(), os.getpid())
        daemon = await stack.enter_async_context(
            AutoRecovery(
                name,
                coordination=zookeeper,
                network=AsyncioNetwork(),
                clock=clock,
                random=Random(),  # noqa: S311 - jitter and the order of work, no secrets
                config=config.auto_recovery,
            )
        )
        metrics = PartMetrics(PART)
        metrics.collectors.append(AutoRecoveryMetrics(daemon).collect)
        await stack.enter_async_context(LoopLag(metrics))
        app = part_app(
            metrics,
            check_health=lambda: check_health(zookeeper.state),
            resource=Resource("cluster", PART),
        )
        # Opened last, so that the process answers probes only when it works.
        http = await stack.enter_async_context(
            HttpServer(
                app,
                config.bind_address,
                config.http_port,
                clock=clock,
                connections_max=files.http,
                metrics=metrics,
            )
        )
        log.info("auto-recovery serves", extra={"recovery": name, "http_port": http.port})
        await stop.wait()


def made_up_id(host: str, process_id: int) -> str:
    """A name that no other process has, which is valid as a bookie's id."""
    return f"{PART}-{_STRANGE.sub('-', host)}-{process_id}"


async def check_health(state: SessionState) -> None:
    """Raise ``NoZooKeeper`` while there is no session: nothing can be read or written then."""
    if state is not SessionState.CONNECTED:
        raise NoZooKeeper(state.value)
