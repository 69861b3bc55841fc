"""``geminga initialize-cluster-metadata``: a new cluster's first records, as upstream writes them.

The options are upstream's, with their short forms, so that scripts for ``bin/pulsar`` work here.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack

from geminga_server.config import zookeeper_hosts


def main(arguments: Sequence[str]) -> int:
    """Write the records, and say so; returns 0. Repeating it is harmless."""
    options = make_parser().parse_args(arguments)
    # Upstream's form has the prefix zk:, which is taken off.
    hosts = zookeeper_hosts(options.metadata_store)
    # Upstream's "configuration store": what several clusters may share.
    shared = zookeeper_hosts(options.configuration_metadata_store or hosts)
    import asyncio  # noqa: PLC0415 - not for --help

    asyncio.run(_initialize(hosts, shared, options))
    beside = "" if shared == hosts else f", its configuration in the one at {shared}"
    print(f"cluster {options.cluster} is initialised in the ZooKeeper at {hosts}{beside}")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="geminga initialize-cluster-metadata",
        description="Write a new cluster's first records into ZooKeeper: the cluster and its URLs, "
        "tenant public, namespaces public/default and public/functions. Repeating it is harmless.",
    )
    add = parser.add_argument
    add("--cluster", "-c", required=True, help="the cluster's name")
    add(
        *("--metadata-store", "-md", "--zookeeper", "-zk"),
        required=True,
        metavar="zk:HOST:PORT[,HOST:PORT...]",
        help="where ZooKeeper is",
    )
    add(
        *("--configuration-metadata-store", "-cms", "--configuration-store", "-cs"),
        metavar="zk:HOST:PORT/PATH",
        help="what this cluster shares with others: clusters, tenants, policies of namespaces, "
        "partitioned topics; give it to its brokers, too (default: in the same ZooKeeper)",
    )
    add("--web-service-url", "-uw", required=True, metavar="http://HOST:8080")
    add("--web-service-url-tls", "-tw", default="", metavar="https://HOST:8443")
    add("--broker-service-url", "-ub", default="", metavar="pulsar://HOST:6650")
    add("--broker-service-url-tls", "-tb", default="", metavar="pulsar+ssl://HOST:6651")
    return parser


async def _initialize(hosts: str, shared: str, options: argparse.Namespace) -> None:
    from geminga_cluster.initialize import (  # noqa: PLC0415 - not for --help
        ClusterUrls,
        initialize_cluster_metadata,
    )
    from geminga_runtime.clock import SystemClock  # noqa: PLC0415
    from geminga_server.zookeeper.session import ZooKeeper  # noqa: PLC0415

    urls = ClusterUrls(
        service_url=options.web_service_url,
        broker_service_url=options.broker_service_url,
        service_url_tls=options.web_service_url_tls,
        broker_service_url_tls=options.broker_service_url_tls,
    )
    clock = SystemClock()
    # Both are one ZooKeeper, and one session, unless several clusters share a configuration.
    async with AsyncExitStack() as stack:
        zookeeper = await stack.enter_async_context(ZooKeeper(hosts, clock))
        store = zookeeper
        if shared != hosts:
            store = await stack.enter_async_context(ZooKeeper(shared, clock))
        await initialize_cluster_metadata(
            *(zookeeper, options.cluster, urls),
            configuration=store,
            # Only for a new cluster: an id that is there already stays, or every bookie would
            # refuse to start.
            instance_id=str(uuid.uuid4()),
        )
