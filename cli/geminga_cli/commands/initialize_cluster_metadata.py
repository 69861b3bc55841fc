"""``geminga initialize-cluster-metadata``: a new cluster's first records, as upstream writes them.

Options are upstream's, with their short forms; its ``bin/pulsar`` scripts can be used as they are.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Initialise, and say so; repeating it is harmless."""
    parser = _parser()
    options = parser.parse_args(arguments)
    hosts = zookeeper_hosts(options.metadata_store)
    if options.configuration_metadata_store and (
        zookeeper_hosts(options.configuration_metadata_store) != hosts
    ):
        parser.error("a configuration store of its own is not supported yet: give the same twice")
    import asyncio  # noqa: PLC0415 - not for --help

    asyncio.run(_initialize(hosts, options))
    print(f"cluster {options.cluster} is initialised in the ZooKeeper at {hosts}")
    return 0


def zookeeper_hosts(store: str) -> str:
    """``host:port,host:port/chroot`` of a metadata store URL (``zk:...``) or of plain hosts."""
    return store.removeprefix("metadata-store:").removeprefix("zk:").removeprefix("//")


def _parser() -> argparse.ArgumentParser:
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
        metavar="zk:HOST:PORT",
        help="the same",
    )
    add("--web-service-url", "-uw", required=True, metavar="http://HOST:8080")
    add("--web-service-url-tls", "-tw", default="", metavar="https://HOST:8443")
    add("--broker-service-url", "-ub", default="", metavar="pulsar://HOST:6650")
    add("--broker-service-url-tls", "-tb", default="", metavar="pulsar+ssl://HOST:6651")
    return parser


async def _initialize(hosts: str, options: argparse.Namespace) -> None:
    from geminga_cluster.initialize import (  # noqa: PLC0415 - not for --help
        ClusterUrls,
        initialize_cluster_metadata,
    )
    from geminga_runtime.clock import SystemClock  # noqa: PLC0415
    from geminga_server.zookeeper import ZooKeeper  # noqa: PLC0415

    urls = ClusterUrls(
        service_url=options.web_service_url,
        broker_service_url=options.broker_service_url,
        service_url_tls=options.web_service_url_tls,
        broker_service_url_tls=options.broker_service_url_tls,
    )
    async with ZooKeeper(hosts, SystemClock()) as zookeeper:
        await initialize_cluster_metadata(
            zookeeper, options.cluster, urls, instance_id=str(uuid.uuid4())
        )
