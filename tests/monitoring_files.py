"""What `docker/monitoring` gives Prometheus and Grafana: expressions, and the metrics in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.project_files import GOLDEN, ROOT

FOLDER = ROOT / "docker" / "monitoring"
RULES = (FOLDER / "prometheus" / "rules.yml").read_text()
# The metrics that a real cluster showed; `tests/integration/brokers/test_monitoring.py` compares.
RECORDED: dict[str, list[str]] = json.loads((GOLDEN / "metric-names.json").read_text())

# What Grafana fills in.
GRAFANAS = {"$__rate_interval": "1m", "$namespace": ".*"}

# Prometheus makes it of every scrape.
PROMETHEUS_OWN = {"up"}
OPERATORS = {"and", "or", "unless"}
# Labels and durations, which are no metrics.
NO_METRIC = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring)\s*\([^)]*\)")
BY_PATTERN = re.compile(r'\{__name__=~"([^"]+)"')
WORD = re.compile(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()")  # what a bracket follows is a function


def dashboards() -> dict[str, Any]:
    """Each dashboard by the name of its file."""
    paths = sorted((FOLDER / "grafana" / "dashboards").iterdir())
    return {path.name: json.loads(path.read_text()) for path in paths}


def expressions() -> Iterator[tuple[str, str]]:
    """Where an expression stands, and itself as Prometheus is asked."""
    for file, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for name, value in GRAFANAS.items():
                    expression = expression.replace(name, value)
                yield f"{file}: {panel['title']}", expression
    for alert in RULES.split("\n      - alert: ")[1:]:
        found = re.search(r"expr: (?:>-\n)?(.*?)\n        [a-z]", alert, re.DOTALL)
        assert found is not None, alert
        yield f"rules.yml: {alert.splitlines()[0]}", " ".join(found[1].split()).strip("'")


def missing_metrics(expression: str, names: set[str]) -> set[str]:
    """The metrics, or patterns of metrics, that the expression asks for and that are not there."""
    patterns = BY_PATTERN.findall(expression)
    words = set(WORD.findall(NO_METRIC.sub(" ", expression))) - OPERATORS - PROMETHEUS_OWN
    unmatched = {each for each in patterns if not any(re.fullmatch(each, name) for name in names)}
    assert words or patterns or "up" in expression, f"{expression} asks for nothing"
    return unmatched | (words - names)
