"""``geminga admin functions-worker``: the workers of a cluster."""

from __future__ import annotations

from geminga_cli.admin.operation import Operation, gets, sends

# ``WorkerApiV2Resource`` and ``WorkerStatsApiV2Resource`` of Pulsar. Workers answer them; a broker
# or a proxy that knows the workers passes the requests on.
OPERATIONS = (
    Operation("get-cluster", "list the workers", (), gets("worker/cluster")),
    Operation(
        "get-cluster-leader", "show the leader of the workers", (), gets("worker/cluster/leader")
    ),
    Operation(
        "get-function-assignments",
        "show which worker runs which instances",
        (),
        gets("worker/assignments"),
    ),
    # The next two are about the worker that is asked, and no other.
    Operation(
        "function-stats",
        "show the counters of a worker's instances",
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
        "let the leader distribute the instances evenly",
        (),
        sends("PUT", "worker/rebalance"),
    ),
)
