"""ZooKeeper's own measurements as Prometheus text, under the names its own exporter gives them.

Source: the answer to ``mntr``, lines of ``zk_<name> TAB <value>``. A summary named ``x`` comes as
``avg_x min_x max_x cnt_x sum_x`` and sometimes ``p50_x p95_x p99_x p999_x``; Prometheus wants
``x_count``, ``x_sum`` and ``x{quantile="0.5"}``. Averages and extremes of summaries are left out:
they never forget, and dashboards work them out from the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99", "p999": "0.999"}
SUMMARY_PREFIX = re.compile(r"^(avg|min|max|cnt|sum|p50|p95|p99|p999)_(.+)$")
METRIC_NAME = re.compile(r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")


def prometheus_text(mntr: bytes) -> str:
    """Families in the exposition format 0.0.4, sorted by name; every line ends with a newline."""
    values = dict(_numbers(mntr.decode(errors="replace")))
    summaries = {name.removeprefix("cnt_") for name in values if name.startswith("cnt_")}
    lines: list[str] = []
    for name in sorted(values.keys() - set(_members(values, summaries))):
        lines.append(f"# TYPE {name} gauge")
        lines.append(f"{name} {values[name]}")
    for name in sorted(summaries):
        lines.extend(_summary_lines(name, values))
    return "".join(f"{line}\n" for line in lines)


def _numbers(text: str) -> Iterator[tuple[str, str]]:
    """Names without ``zk_``, and values as they came; what is no number or no name is left out."""
    for line in text.splitlines():
        name, _, value = line.removeprefix("zk_").partition("\t")
        if METRIC_NAME.match(name) and _is_number(value):
            yield name, value


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _members(values: dict[str, str], summaries: set[str]) -> Iterator[str]:
    """The names that belong to a summary."""
    for name in values:
        parts = SUMMARY_PREFIX.match(name)
        if parts and parts[2] in summaries:
            yield name


def _summary_lines(name: str, values: dict[str, str]) -> Iterator[str]:
    yield f"# TYPE {name} summary"
    for prefix, quantile in QUANTILES.items():
        if (value := values.get(f"{prefix}_{name}")) is not None:
            yield f'{name}{{quantile="{quantile}"}} {value}'
    yield f"{name}_count {values[f'cnt_{name}']}"
    yield f"{name}_sum {values.get(f'sum_{name}', '0')}"
