"""Starting a server on an empty directory, its first message, its rest, its end."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
from tests.performance.loads.measure import Figures, Phases
from tests.performance.loads.official_client import silent_logger
from tests.performance.rivals.program import START_S_MAX, ServerFailed
from tests.performance.rivals.servers import Rival, Server, started, wait_until_ready

SETTLE_S = 10.0
IDLE_S = 5.0
RETRY_S = 0.02
# A client that came too early waits longer and longer before it asks again; a new one asks at once.
CLIENT_TIMEOUT_S = 5


def startup(rival: Rival, directory: Path) -> Phases:
    """From exec to READY, to the first acknowledged message; memory and CPU at rest; the stop."""
    with started(rival, directory) as server:
        first_message_s: list[float] = []
        client = threading.Thread(
            target=lambda: first_message_s.append(_first_message(server)), daemon=True
        )
        client.start()
        ready_s = wait_until_ready(rival, server)
        client.join(START_S_MAX)
        if not first_message_s:
            raise ServerFailed("no message went through it", server.program.output)
        figures: Figures = {"ready_s": ready_s, "first_message_s": first_message_s[0]}
        figures["cpu_until_first_message_s"] = server.program.processes.cpu_s()
        time.sleep(SETTLE_S)
        figures["idle_pss_mb"] = server.program.processes.pss_mb()
        figures["idle_cpu_percent"] = _idle_cpu_percent(server)
        figures["stop_s"] = server.program.stop()
    return {"startup": figures}


def _first_message(server: Server) -> float:
    """Seconds from exec until a message was published, received and acknowledged."""
    address = urlsplit(server.service_url)
    assert address.hostname is not None
    assert address.port is not None
    deadline = server.program.started_at_s + START_S_MAX
    while True:
        try:
            socket.create_connection((address.hostname, address.port), 1).close()
            _round_trip(server)
            return time.perf_counter() - server.program.started_at_s
        except (OSError, pulsar.PulsarException):
            server.program.check_alive()
            if time.perf_counter() > deadline:
                raise
            time.sleep(RETRY_S)


def _round_trip(server: Server) -> None:
    client = pulsar.Client(
        server.service_url,
        operation_timeout_seconds=CLIENT_TIMEOUT_S,
        logger=silent_logger(),
    )
    try:
        consumer = client.subscribe("persistent://public/default/first", "first")
        client.create_producer("persistent://public/default/first").send(b"hello")
        consumer.acknowledge(consumer.receive(CLIENT_TIMEOUT_S * 1000))
    finally:
        client.close()


def _idle_cpu_percent(server: Server) -> float:
    before = server.program.processes.cpu_s()
    time.sleep(IDLE_S)
    return (server.program.processes.cpu_s() - before) / IDLE_S * 100
