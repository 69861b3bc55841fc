"""``geminga broker``: runs one broker."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.config import BrokerConfig
from geminga_cli.commands.parts.part_command import run_part_command
from geminga_cli.commands.parts.settings_help import HelpPages, Subject

# The part's module, then modules that it imports when it begins to serve: imported while the part
# waits at its gate, they cost the start no time.
MODULES = (
    "geminga_broker.part",
    "geminga_broker.admin.app",
    "geminga_server.http.server",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
)

PAGES = HelpPages(
    "Run one broker: it serves topics to Pulsar clients, and stores what they publish on the "
    "bookies of its cluster, which it finds in ZooKeeper. A new cluster needs `geminga "
    "initialize-cluster-metadata` once.",
    # The settings that a first cluster needs, in the order in which people ask for them.
    first=(
        *("zookeeper", "cluster", "bind_address", "advertised_address", "port", "web_port"),
        *("log.ensemble_size", "log.write_quorum", "log.ack_quorum", "cache_bytes_max"),
        *("auto_topic_creation", "log_level"),
    ),
    # Pages of --help: every setting is on one of them, by the patterns of its name.
    subjects=(
        Subject(
            "network",
            "where it listens, and its connections to clients",
            (
                *("bind_address", "advertised_address", "*port", "former_broker_ids"),
                *("listeners.*", "connections.*", "sessions.*"),
            ),
        ),
        Subject(
            "tls",
            "TLS: ports, certificates, and authorities to trust",
            ("*port_tls", "tls*", "broker_client_tls.*", "bookkeeper_tls.*"),
        ),
        Subject("load", "how bundles are placed, moved and split by load", ("load_*",)),
        Subject(
            "cluster",
            "where the cluster is",
            ("cluster*", "configuration_store", "initialize", "zookeeper*"),
        ),
        Subject(
            "process",
            "logs, and how it stops",
            ("log_*", "close_budget_s", "hand_on_budget_s", "stats_period_s", "exposes_*"),
        ),
        Subject("cache", "the newest entries in memory", ("cache.*",)),
        Subject("log", "how topics are stored: ledgers, cursors, retention", ("log.*",)),
        Subject(
            "topics",
            "how topics are created and deleted",
            ("policies.auto_creation.*", "inactivity.*", "admin.*"),
        ),
        Subject(
            "publishing",
            "limits on producers, deduplication, broker entry metadata",
            ("publishing.*", "broker_entry_metadata_interceptors"),
        ),
        Subject(
            "subscribing",
            "limits on subscriptions and consumers",
            ("subscribing.*", "policies.unacknowledged.*"),
        ),
        Subject("dispatching", "how fast messages are sent to consumers", ("dispatching.*",)),
        Subject(
            "backlog",
            "quotas on backlogs, and expiry of messages",
            ("policies.backlog.*", "expiry.*"),
        ),
        Subject("delayed", "delayed delivery", ("delayed.*",)),
        Subject("compaction", "compaction of topics by key", ("compaction.*",)),
        Subject("functions", "where functions run", ("functions_worker*",)),
        Subject("replication", "replication to other clusters", ("replication.*",)),
        Subject("schemas", "which schemas topics may have", ("policies.schemas.*",)),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    return run_part_command("broker", BrokerConfig, MODULES, arguments, PAGES)
