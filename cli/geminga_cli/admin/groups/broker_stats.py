"""``geminga admin broker-stats``."""

from __future__ import annotations

from geminga_cli.admin.operation import Operation, gets

OPERATIONS = (
    Operation(
        "load-report",
        "show the load of the broker: rates, clients and topics of each of its bundles",
        (),
        gets("broker-stats/load-report"),
    ),
)
