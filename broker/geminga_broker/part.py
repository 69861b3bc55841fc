"""A broker as a process: config, logs, ZooKeeper, the broker itself, its REST side.

``serve`` reads as the order of starting. The broker reports ``ready`` to its supervisor once a
message was published and read back. Where that fails it reports so all the same, and logs a
warning: what is stored can still be read.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from geminga import Tls, TlsFailed
from geminga_broker.broker import PULSAR_VERSION, Broker
from geminga_broker.config import BrokerConfig
from geminga_broker.configuration import runtime_configuration
from geminga_broker.functions_worker import FunctionsForwarder, WorkerProcess
from geminga_broker.load_manager.process_usage import ProcessUsage
from geminga_cluster.initialize import ClusterUrls, initialize_cluster_metadata
from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import Coordination
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import AsyncioNetwork
from geminga_server.authorization import allow_all
from geminga_server.config.loading import load_config
from geminga_server.config.service_urls import urls_in
from geminga_server.connection_limits import connections_allowed
from geminga_server.control.client import PartCommands, obeying_supervisor
from geminga_server.control.supervision import part_name
from geminga_server.errors import ServerStartError
from geminga_server.http.rest_calls import HttpCalls
from geminga_server.logging import configure_logging
from geminga_server.memory import tune_memory
from geminga_server.open_files import OpenFiles, open_files
from geminga_server.ports import free_port, require_distinct
from geminga_server.run import CLOSE_TIMEOUT_S, StopRequest, run_part
from geminga_server.tls.config import BrokerClientTlsConfig
from geminga_server.tls.renewal import accepting_tls

log = logging.getLogger(__name__)

# The name of the section in the config file, and of the part for the supervisor.
PART = "broker"
LOCALHOST = "127.0.0.1"
# How long a broker that could not publish at its start waits before it tries again.
HEALTH_RETRY_S = 5.0


def main(file: Path | None, flags: Mapping[str, object]) -> int:
    """Run a broker until it is asked to stop; returns the process's exit code."""
    config = load_config(BrokerConfig, PART, file=file, flags=flags)
    # Before anything is opened: two settings with one port would fail only when the second one
    # listens.
    require_distinct({f"--{name.replace('_', '-')}": port for name, port in config.ports.items()})
    configure_logging(part_name(PART), level=config.log_level, is_json=config.log_json)
    # The hand-over to other brokers comes first; the process is killed only after both times.
    close_timeout_s = config.hand_on_budget_s + CLOSE_TIMEOUT_S
    return run_part(lambda stop: serve(config, stop), close_timeout_s=close_timeout_s)


async def serve(config: BrokerConfig, stop: StopRequest) -> None:
    """Open everything, report it, and wait for the request to stop. In this order:

    1. The limit of open files, by which ``settled`` bounds the connections, and the ports: they go
       into records (registration, ownership, the cluster's URLs) before the broker listens.
    2. ZooKeeper, and the records of the cluster, without which the broker refuses to start.
    3. The broker: it serves the Pulsar protocol from here on. Then REST, which works on its parts.
    4. The health check, and only then the report: the supervisor waits for it, and may ask for the
       end from here on.
    5. The functions worker, which connects to this broker at once.

    Everything closes in reverse order, so ZooKeeper last, whose session the broker's records need.
    """
    # Imported here, while ZooKeeper is starting, too: the web framework takes a third of a second.
    from geminga_broker.admin.app import answering_for, create_app  # noqa: PLC0415
    from geminga_broker.admin.routes.cluster.brokers import ROUTINE_PATHS  # noqa: PLC0415
    from geminga_server.http.server import HttpServer  # noqa: PLC0415

    tune_memory()
    clock = SystemClock()
    files = open_files()
    config = settled(config, files)
    async with AsyncExitStack() as stack:
        zookeeper = await stack.enter_async_context(config.zookeeper_client(clock, stop))
        store = zookeeper
        if hosts := config.shared_zookeeper:
            store = await stack.enter_async_context(config.zookeeper_client(clock, stop, hosts))
        if config.initialize:
            await initialize(zookeeper, store, config)
        tls = await accepting_tls(config.tls, stack)
        broker = Broker(
            config,
            coordination=zookeeper,
            configuration_store=store,
            network=AsyncioNetwork(),
            clock=clock,
            random=Random(),  # noqa: S311 - jitter and names, no secrets
            authorize=allow_all,
            usage=ProcessUsage(clock),
            tls_network=AsyncioNetwork(tls) if tls else None,
            calls=calls_to_brokers(config.broker_client_tls),
            remote_calls=calls_to_cluster,
        )
        await stack.enter_async_context(broker)
        services = broker.services(runtime_configuration(config))
        workers = functions_urls(config)
        app = await stack.enter_async_context(
            FunctionsForwarder(create_app(services), AsyncioNetwork(), workers)
        )
        http: HttpServer | None = None  # the first one, which counts the others' connections, too
        for bind in config.binds:
            if not bind.is_web:
                continue
            server = HttpServer(
                answering_for(bind.listener, app) if bind.listener else app,
                bind.host,
                bind.port,
                clock=clock,
                connections_max=files.http,
                metrics=None if http else services.part_metrics,
                beside=http,
                routine_paths=ROUTINE_PATHS,
                tls=tls if bind.is_tls else None,
            )
            await stack.enter_async_context(server)
            http = http or server
        await check_health(broker)
        await announce(stack, broker, stop)
        if runs_worker(config):
            worker = WorkerProcess(worker_options(config, workers[0]), Random())  # noqa: S311
            await stack.enter_async_context(worker)
        await stop.wait()


def runs_worker(config: BrokerConfig) -> bool:
    """Whether a functions worker runs beside this broker."""
    functions = config.functions
    return functions.functions_worker_enabled and not functions.functions_worker_web_service_url


def functions_urls(config: BrokerConfig) -> tuple[str, ...]:
    """The URLs of functions workers: those that are set, or of the one beside this broker."""
    # The worker listens on the loopback address alone: clients reach it through this broker.
    if runs_worker(config):
        # Chosen now and bound later by the worker: a port that is taken in between makes the worker
        # end, and its next start fails too, which its log says.
        return (f"http://{LOCALHOST}:{free_port(LOCALHOST, 0)}",)
    return urls_in(config.functions.functions_worker_web_service_url)


def worker_options(config: BrokerConfig, url: str) -> Mapping[str, str]:
    """The options of the functions worker beside this broker, which answers at ``url``."""
    address = config.address
    directory = config.functions.functions_worker_directory
    # As words of a command line: an option without a value is a flag.
    return {
        "--worker-id": f"worker-of-{address.broker_id}",
        "--bind-address": LOCALHOST,
        "--worker-port": url.rpartition(":")[2],
        "--pulsar-service-url": address.broker_url,
        "--pulsar-web-service-url": address.http_url,
        "--pulsar-functions-cluster": config.cluster,
        "--directory": directory,
        "--log-directory": f"{directory}/logs",
        "--log-level": config.log_level,
        **({"--log-json": ""} if config.log_json else {}),
    }


def settled(config: BrokerConfig, files: OpenFiles) -> BrokerConfig:
    """``config`` with the ports that were free, and as many connections as open files allow.

    Raises ``ServerStartError`` where a port is in use.
    """
    host = config.bind_address
    # Fails at once where a listener's port is in use; these ports are never chosen.
    for bind in config.listeners.binds:
        free_port(bind.host, bind.port)
    ports = {name: free_port(host, port) for name, port in config.ports.items()}
    return replace(
        config,
        port=ports.get("port", config.port),
        web_port=ports.get("web_port", config.web_port),
        port_tls=ports.get("port_tls", config.port_tls),
        web_port_tls=ports.get("web_port_tls", config.web_port_tls),
        connections=connections_allowed(config.connections, files),
    )


def calls_to_brokers(config: BrokerClientTlsConfig) -> HttpCalls:
    """What makes requests to other brokers. Raises ``ServerStartError`` for unusable files."""
    # Made anew with each connection, so that renewed certificates are used; and once now, so that a
    # mistake is found at the start.
    config.context()
    return HttpCalls(tls=config.context, prefers_tls=config.enabled)


def calls_to_cluster(tls: Tls | None) -> HttpCalls:
    """What makes requests to the brokers of another cluster, with TLS where its record says so."""

    def context(tls: Tls) -> ssl.SSLContext:
        try:
            return tls.context()
        except TlsFailed as error:
            raise ServerStartError(str(error)) from error

    return HttpCalls() if tls is None else HttpCalls(tls=partial(context, tls))


async def check_health(broker: Broker) -> None:
    """Publish a message and read it back; where that fails, log it and retry in the background.

    The bookies may be full, or start later; what they have is served meanwhile.
    """
    # Not an error that ends the broker: what is stored can still be read, and the supervisor would
    # only start it again into the same state.
    try:
        await broker.check_health()
    except GemingaError as error:
        log.warning("no message goes through: topics can only be read", extra={"why": str(error)})
        # A task of the broker: it ends with it.
        broker.spawn(wait_until_healthy(broker), name="wait until healthy")


async def wait_until_healthy(broker: Broker) -> None:
    """Retry until a message goes through, and log that."""
    while True:
        await asyncio.sleep(HEALTH_RETRY_S)
        # Logged once, when it failed first.
        with suppress(GemingaError):
            await broker.check_health()
            log.info("messages go through")
            return


async def announce(stack: AsyncExitStack, broker: Broker, stop: StopRequest) -> None:
    """Report to the supervisor, if there is one, that the broker serves; obey it from then on."""
    address = broker.address
    addresses = {
        "pulsar": address.broker_url,
        "web": address.http_url,
        "metrics": f"{address.rest_url}/metrics/",
        "pulsar_tls": address.broker_url_tls,
        "web_tls": address.http_url_tls,
    }
    # Those that the broker does not serve are empty.
    addresses = {purpose: url for purpose, url in addresses.items() if url}
    # By then ``broker.config`` has the limit that the open files allow.
    connections_max = broker.config.connections.connections_max
    log.info("broker serves", extra={**addresses, "connections_max": connections_max})
    commands = PartCommands(shutdown=stop.ask, check_health=broker.check_health)
    # On the stack above the broker, so that it is left first: the supervisor asks nothing of a part
    # that closes.
    await stack.enter_async_context(obeying_supervisor(PART, PULSAR_VERSION, commands, addresses))


async def initialize(
    coordination: Coordination, configuration: Coordination, config: BrokerConfig
) -> None:
    """Write the cluster's first records where they are missing, and its present URLs."""
    address = config.address
    await initialize_cluster_metadata(
        coordination,
        config.cluster,
        ClusterUrls(
            service_url=config.cluster_web_service_url or address.http_url,
            broker_service_url=config.cluster_service_url or address.broker_url,
            service_url_tls=address.http_url_tls,
            broker_service_url_tls=address.broker_url_tls,
        ),
        configuration=configuration,
        instance_id=str(uuid.uuid4()),
        # Its ports may be others than at its last start, and clients of other clusters go by the
        # record.
        replace_urls=True,
    )
