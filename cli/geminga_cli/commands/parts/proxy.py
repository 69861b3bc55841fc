"""``geminga proxy``: runs one proxy with a TOML file, environment variables, or options."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_cli.commands.parts.part_command import run_part_command
from geminga_cli.commands.parts.settings_help import HelpPages, Subject
from geminga_proxy.config import ProxyConfig

# The part, then what it imports when it begins to serve.
MODULES = (
    "geminga_proxy.part",
    "geminga_server.http",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
)

PAGES = HelpPages(
    "Run one proxy: the gateway for clients that cannot reach the brokers of a cluster. It finds "
    "the brokers in ZooKeeper, or asks those that it is given. Several proxies share the work: "
    "clients may use any of them.",
    first=(
        *("zookeeper", "broker_service_url", "broker_web_service_url", "bind_address"),
        *("port", "web_port", "function_worker_web_service_url", "connections_max"),
        *("broker_proxy_allowed_host_names", "log_level"),
    ),
    subjects=(
        Subject(
            "network",
            "where it listens, how many clients it takes",
            ("bind_address", "advertised_address", "*port", "connections.*", "keepalive_s", "ha_*"),
        ),
        Subject(
            "cluster",
            "where the brokers are, and which of them clients are connected to",
            ("zookeeper*", "broker_*_url*", "targets.*", "concurrent_lookup_*"),
        ),
        Subject(
            "tls",
            "TLS towards clients, and towards brokers",
            ("*port_tls", "tls.*", "broker_tls.*"),
        ),
        Subject("rest", "how REST is forwarded", ("web.*", "function_*")),
        Subject("process", "processes and logs", ("workers", "log_*")),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    return run_part_command("proxy", ProxyConfig, MODULES, arguments, PAGES)
