"""``geminga status``: what a cluster consists of, and whether it accepts messages.

Exit codes: 0 it does, 1 it does not or does not answer, 2 the command line is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from geminga_cli.admin.errors import AdminRefused, BrokerUnreachable, InvalidUse
from geminga_cli.admin.options import add_service_options, service_of
from geminga_cli.admin.service import AdminService
from geminga_cli.display.text import show_json
from geminga_cli.output import print_lines

EXIT_UNHEALTHY, EXIT_MISUSED = 1, 2
HEALTHY = "ok"


def main(arguments: Sequence[str]) -> int:
    """Show the status; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="geminga status",
        description="Show what a cluster consists of, and whether it accepts messages. Exit codes: "
        "0 it does, 1 it does not or does not answer, 2 the command line is wrong.",
        allow_abbrev=False,
    )
    add_service_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    options = parser.parse_args(arguments)
    # Requests go out one after the other over one connection: a status is for people, who do not
    # notice the sum.
    try:
        with service_of(options) as service:
            status = status_of(service)
    except (AdminRefused, BrokerUnreachable) as error:
        print(f"geminga: {error}", file=sys.stderr)
        return EXIT_UNHEALTHY
    except InvalidUse as error:
        print(f"geminga: {error}", file=sys.stderr)
        return EXIT_MISUSED
    print_lines(show_json(status) if options.json else show_status(status))
    return 0 if status["health"] == HEALTHY else EXIT_UNHEALTHY


def status_of(service: AdminService) -> dict[str, Any]:
    """The status as a record. Raises ``AdminRefused``, ``BrokerUnreachable``."""
    # The health check writes and reads a message, so it fails where the rest of REST still answers.
    try:
        health = service.ask("GET", "brokers/health", {"topicVersion": "V2"})
    except AdminRefused as error:
        # The refusal of the health check is the answer: the rest of the status is still of use.
        health = str(error)
    leader: str | None = None
    with suppress(AdminRefused):  # there is no leader while brokers elect one
        leader = service.ask("GET", "brokers/leaderBroker")["brokerId"]
    # One request for each tenant: a cluster has few of them.
    tenants: list[str] = service.ask("GET", "tenants")
    namespaces = {each: service.ask("GET", f"namespaces/{each}") for each in tenants}
    return {
        "health": health,
        "version": service.ask("GET", "brokers/version"),
        "brokers": service.ask("GET", "brokers"),
        "leader": leader,
        "clusters": service.ask("GET", "clusters"),
        "tenants": namespaces,
    }


def show_status(status: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a status, for people."""
    yield f"health    {status['health']}"
    yield f"version   {status['version']}"
    yield f"clusters  {', '.join(status['clusters'])}"
    yield f"brokers   {len(status['brokers'])}"
    for broker in status["brokers"]:
        yield f"  {broker}{' (leader)' if broker == status['leader'] else ''}"
    yield f"tenants   {len(status['tenants'])}"
    for tenant, namespaces in status["tenants"].items():
        # The tenant stands in front of the line already.
        local = ", ".join(each.removeprefix(f"{tenant}/") for each in namespaces)
        yield f"  {tenant}: {local or 'no namespaces'}"
