"""What every test that needs Java is marked with, and when one is skipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.apache_java.java import NotRun, pulsar_home

# JVMs and clusters take their time to start, and the first test of a folder waits for them.
TIMEOUT_S = 900


def mark_java(items: list[pytest.Item], here: Path) -> None:
    """Mark those of ``items`` that are below the folder ``here``."""
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.java)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


def pulsar_home_or_skip() -> Path:
    """Where Apache Pulsar is; without one the test is skipped and says why."""
    try:
        return pulsar_home()
    except NotRun as reason:
        pytest.skip(str(reason))
