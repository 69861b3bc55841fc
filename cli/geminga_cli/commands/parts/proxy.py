"""``geminga proxy``: runs one proxy."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_cli.commands.parts.part_command import run_part_command
from geminga_cli.commands.parts.settings_help import HelpPages, Subject
from geminga_proxy.config import ProxyConfig

# The part's module, then modules that it imports when it begins to serve: imported while the part
# waits at its gate, they cost the start no time.
MODULES = (
    "geminga_proxy.part",
    "geminga_server.http.server",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
)

PAGES = HelpPages(
    "Run one proxy: the gateway for clients that cannot reach the brokers of a cluster. It finds "
    "the brokers in ZooKeeper, or uses the URLs that it is given. Clients may use any of several "
    "proxies.",
    first=(
        *("zookeeper", "broker_service_url", "broker_web_service_url", "bind_address"),
        *("port", "web_port", "function_worker_web_service_url", "connections_max"),
        *("broker_proxy_allowed_host_names", "log_level"),
    ),
    subjects=(
        Subject(
            "network",
            "where it listens, and how many clients it accepts",
            ("bind_address", "advertised_address", "*port", "connections.*", "keepalive_s", "ha_*"),
        ),
        Subject(
            "cluster",
            "where the brokers are, and which of them clients may reach",
            ("zookeeper*", "broker_*_url*", "targets.*", "concurrent_lookup_*"),
        ),
        Subject(
            "tls",
            "TLS of clients, and to brokers",
            ("*port_tls", "tls.*", "broker_tls.*"),
        ),
        Subject("rest", "how REST requests are forwarded", ("web.*", "function_*")),
        Subject("process", "processes and logs", ("workers", "log_*")),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    return run_part_command("proxy", ProxyConfig, MODULES, arguments, PAGES)
