"""``geminga admin functions-worker``: the cluster of workers."""

from __future__ import annotations

from geminga_cli.admin.operation import Operation, gets, sends

OPERATIONS = (
    Operation("get-cluster", "list the workers", (), gets("worker/cluster")),
    Operation("get-cluster-leader", "show which worker leads", (), gets("worker/cluster/leader")),
    Operation(
        "get-function-assignments",
        "show which worker runs which instances",
        (),
        gets("worker/assignments"),
    ),
    Operation(
        "function-stats",
        "show what the instances of a worker counted",
        (),
        gets("worker-stats/functionsmetrics"),
    ),
    Operation(
        "monitoring-metrics",
        "show a worker's own metrics",
        (),
        gets("worker-stats/metrics"),
    ),
    Operation(
        "rebalance",
        "have the leader spread the instances evenly",
        (),
        sends("PUT", "worker/rebalance"),
    ),
)
