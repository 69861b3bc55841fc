"""``geminga functions-worker``: runs one functions worker."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_cli.commands.parts.part_command import run_part_command
from geminga_cli.commands.parts.settings_help import HelpPages, Subject
from geminga_functions.config import FunctionsWorkerConfig

# The part's module, then modules that it imports when it begins to serve: imported while the part
# waits at its gate, they cost the start no time.
MODULES = (
    "geminga_functions.part",
    "geminga_server.http.server",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
)

PAGES = HelpPages(
    "Run one functions worker: it runs functions, sources and sinks, and shares them with all "
    "workers of the same cluster, which elect a leader. It connects to brokers, or to a proxy, "
    "and to nothing else.",
    first=(
        *("pulsar_service_url", "pulsar_web_service_url", "worker_id", "bind_address"),
        *("worker_port", "directory", "log_level"),
    ),
    subjects=(
        Subject(
            "network",
            "where it listens, where brokers are",
            ("bind_address", "worker_hostname", "worker_port", "pulsar_*_url"),
        ),
        Subject(
            "cluster",
            "which workers form a cluster, and how they share their work",
            (
                *("worker_id", "pulsar_functions_*", "*_topic_name", "lease_s", "rebalances"),
                "topic_compaction_s",
            ),
        ),
        Subject("instances", "how instances are run", ("runtime.*",)),
        Subject("process", "logs of the worker itself", ("log_level", "log_json")),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    return run_part_command("functions-worker", FunctionsWorkerConfig, MODULES, arguments, PAGES)
