"""ZooKeeper's own measurements as Prometheus text, under the names that its own exporter uses.

The source is the answer to ``mntr``: lines of ``zk_<name> TAB <value>``. A summary ``x`` comes as
``avg_x min_x max_x cnt_x sum_x``, and sometimes ``p50_x p95_x p99_x p999_x``; Prometheus expects
``x_count``, ``x_sum`` and ``x{quantile="0.5"}``. Averages and extremes of summaries are left out:
they cover the whole life of the server, and dashboards compute them from the other values.
"""

from __future__ import annotations

import re

QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99", "p999": "0.999"}
SUMMARY_PREFIX = re.compile(r"^(avg|min|max|cnt|sum|p50|p95|p99|p999)_(.+)$")
METRIC_NAME = re.compile(r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")


def prometheus_text(mntr: bytes) -> str:
    """Families in the exposition format 0.0.4, sorted by name; every line ends with a newline."""
    # Values stay text, as they came. What is no number (the version, the server's state) is left
    # out.
    values: dict[str, str] = {}
    for line in mntr.decode(errors="replace").splitlines():
        # The exporter of ZooKeeper has no prefix, and dashboards are made for it.
        name, _, value = line.removeprefix("zk_").partition("\t")
        if not METRIC_NAME.match(name):
            continue
        try:
            float(value)
        except ValueError:
            continue
        values[name] = value
    # Two passes: ``mntr`` has no types, so only the count that came with a summary shows that it is
    # one.
    summaries = {name.removeprefix("cnt_") for name in values if name.startswith("cnt_")}
    # By name alone ``min_latency`` and the like would be summaries too; a count makes one.
    members = {
        name for name in values if (parts := SUMMARY_PREFIX.match(name)) and parts[2] in summaries
    }
    lines: list[str] = []
    # Everything that is no member of a summary is a gauge: ``mntr`` does not tell which values only
    # grow.
    for name in sorted(values.keys() - members):
        lines += [f"# TYPE {name} gauge", f"{name} {values[name]}"]
    for name in sorted(summaries):
        lines.append(f"# TYPE {name} summary")
        for prefix, quantile in QUANTILES.items():
            if (measured := values.get(f"{prefix}_{name}")) is not None:
                lines.append(f'{name}{{quantile="{quantile}"}} {measured}')
        lines.append(f"{name}_count {values[f'cnt_{name}']}")
        lines.append(f"{name}_sum {values.get(f'sum_{name}', '0')}")
    return "".join(f"{line}\n" for line in lines)
