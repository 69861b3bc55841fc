"""A proxy as a process: config, logs, ZooKeeper where it is used, the proxy itself, its REST side.

``serve`` is the order of starting. The supervisor is notified when the proxy listens; clients are
served as soon as there is a broker, and again whenever brokers come back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from geminga_protocol.pulsar.features import SERVER_VERSION
from geminga_proxy.brokers import Brokers, ListedBrokers, RegisteredBrokers
from geminga_proxy.config import BrokerTlsConfig, ProxyConfig
from geminga_proxy.metrics import ProxyNumbers, families
from geminga_proxy.proxy import Proxy
from geminga_proxy.web import Forwarding
from geminga_proxy.workers import Workers
from geminga_runtime.clock import SystemClock
from geminga_runtime.network import AsyncioNetwork
from geminga_server.authorization import Resource
from geminga_server.config.loading import load_config
from geminga_server.connection_limits import connections_allowed
from geminga_server.control.client import PartCommands, obeying_supervisor
from geminga_server.control.supervision import part_name
from geminga_server.errors import ServerStartError
from geminga_server.http.server import HttpServer
from geminga_server.logging import configure_logging
from geminga_server.memory import tune_memory
from geminga_server.metrics import LoopLag, PartMetrics, part_app
from geminga_server.open_files import OpenFiles, open_files
from geminga_server.ports import free_port, require_distinct
from geminga_server.run import StopRequest, run_part
from geminga_server.tls.renewal import accepting_tls

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger(__name__)

PART = "proxy"


def main(file: Path | None, flags: Mapping[str, object]) -> int:
    """Run a proxy until it is told to stop; return the process's exit code."""
    config = load_config(ProxyConfig, PART, file=file, flags=flags)
    require_distinct({f"--{name.replace('_', '-')}": port for name, port in config.ports.items()})
    configure_logging(part_name(PART), level=config.log_level, is_json=config.log_json)
    return run_part(lambda stop: serve(config, stop))


async def serve(config: ProxyConfig, stop: StopRequest) -> None:
    """Open everything, announce it, and wait for the order to stop."""
    tune_memory()
    # Raises the limit as well, by which clients and HTTP connections are bounded below.
    files = open_files()
    # A port that is taken is found out before anything is opened.
    config = with_ports(config)
    metrics = PartMetrics(PART)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(LoopLag(metrics))
        # Entered before the proxy, so that clients come when the first view of the brokers is
        # there.
        brokers = await known_brokers(config, stack, stop)
        tls = await accepting_tls(config.tls, stack)
        # With several workers this process takes no clients itself. The parent's own ``brokers``
        # are for its REST side and its health; each worker has its own.
        if config.workers > 1:
            workers = await stack.enter_async_context(Workers(config, brokers))
            metrics.collectors.append(lambda: families(workers.reports))
            check_health = workers.check_health
        else:
            # Not for workers: each of them counts with its own process's limit.
            config = with_connections(config, files)
            proxy = await stack.enter_async_context(make_proxy(config, brokers, tls))
            metrics.collectors.append(lambda: families({"": ProxyNumbers.of(proxy)}))
            check_health = proxy.check_health
        # REST and metrics are this process's in both cases.
        app = part_app(metrics, check_health=check_health, resource=Resource("cluster", PART))
        # One for all requests, which reads the files of TLS anew for each connection.
        network = AsyncioNetwork(connect_tls=tls_to_brokers(config.broker_tls))
        forwarding = Forwarding(app, brokers, network, config)
        # Left after the HTTP servers, whose requests it forwards.
        await stack.enter_async_context(forwarding)
        http = HttpServer(
            forwarding,
            config.bind_address,
            config.web_port,
            connections_max=files.http,
            metrics=metrics,
        )
        await stack.enter_async_context(http)
        if tls is not None:
            # Beside the plain one, with which it shares the limit on connections.
            address = config.bind_address, config.web_port_tls
            await stack.enter_async_context(HttpServer(forwarding, *address, beside=http, tls=tls))
        # Last: a supervisor sends clients from here on.
        await announce(stack, config, PartCommands(shutdown=stop.ask, check_health=check_health))
        await stop.wait()


async def known_brokers(config: ProxyConfig, stack: AsyncExitStack, stop: StopRequest) -> Brokers:
    """The brokers that the settings name, or those in ZooKeeper, until ``stack`` closes."""
    # Without ZooKeeper the brokers never change, so nothing has to be opened.
    if config.service_urls:
        return ListedBrokers(config)
    zookeeper = await stack.enter_async_context(config.zookeeper_client(SystemClock(), stop))
    return await stack.enter_async_context(
        RegisteredBrokers(zookeeper, is_tls=config.broker_tls.enabled)
    )


def make_proxy(
    config: ProxyConfig, brokers: Brokers, tls: SSLContext | None, *, shares_ports: bool = False
) -> Proxy:
    """Make the proxy of this process, to be entered."""
    # Connections to brokers are made by ``network`` alone. With ``shares_ports`` both listen on
    # ports that other workers have open, too (``SO_REUSEPORT``).
    return Proxy(
        config,
        brokers=brokers,
        network=AsyncioNetwork(
            connect_tls=tls_to_brokers(config.broker_tls), shares_ports=shares_ports
        ),
        tls_network=AsyncioNetwork(tls, shares_ports=shares_ports) if tls else None,
    )


def tls_to_brokers(config: BrokerTlsConfig) -> Callable[[], SSLContext] | None:
    """What secures each connection to a broker; None where connections are plain.

    Reads the files once, so that a mistake in them is found at the start and not by the first
    client. Raises ``ServerStartError``.
    """
    if not config.enabled:
        return None
    try:
        config.context()
    except OSError as error:
        raise ServerStartError(str(error)) from error
    return config.context


def with_ports(config: ProxyConfig) -> ProxyConfig:
    """``config`` with free ports in place of 0. Raises ``ServerStartError`` where one is taken."""
    ports = {name: free_port(config.bind_address, port) for name, port in config.ports.items()}
    return replace(
        config,
        port=ports["port"],
        web_port=ports["web_port"],
        port_tls=ports.get("port_tls", config.port_tls),
        web_port_tls=ports.get("web_port_tls", config.web_port_tls),
    )


def with_connections(config: ProxyConfig, files: OpenFiles) -> ProxyConfig:
    """``config`` with as many clients as the limit on open files leaves room for."""
    # A client that is joined to a broker takes two files.
    halved = replace(files, own=files.own + files.clients // 2)
    allowed = connections_allowed(config.connections, halved)
    connections = replace(config.connections, connections_max=allowed.connections_max)
    return replace(config, connections=connections)


async def announce(stack: AsyncExitStack, config: ProxyConfig, commands: PartCommands) -> None:
    """Log and, to a supervisor, report that the proxy serves; obey the supervisor from then on."""
    host = config.advertised_address or config.bind_address
    web = f"http://{host}:{config.web_port}"
    addresses = {
        "pulsar": f"pulsar://{host}:{config.port}",
        "web": web,
        "metrics": f"{web}/metrics/",
    }
    if config.tls.is_on:
        addresses["pulsar_tls"] = f"pulsar+ssl://{host}:{config.port_tls}"
        addresses["web_tls"] = f"https://{host}:{config.web_port_tls}"
    facts = {"connections_max": config.connections.connections_max, "workers": config.workers}
    log.info("proxy serves", extra={**addresses, **facts})
    await stack.enter_async_context(obeying_supervisor(PART, SERVER_VERSION, commands, addresses))
