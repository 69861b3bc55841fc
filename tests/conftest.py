"""What holds for all tests: how hypothesis judges on machines that are busy with other tests, what
the garbage collector need not look at, and which tests stay together where several processes share
the work."""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

# No deadline for one example, and none for making some: on two cores that run two workers and a
# cluster they say nothing about the code. The same examples every time, so that a commit is judged
# by what is in it; others come with ``--hypothesis-profile=explore``. ``print_blob`` tells how to
# repeat a failure.
settings.register_profile(
    "explore", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("geminga", settings.get_profile("explore"), derandomize=True)
settings.load_profile("geminga")

# One Spark session serves all of its files.
SPARK = "tests/integration/spark/"
# The files that take longest, by far: whichever of them began last would be waited for.
LONGEST = (
    SPARK,
    "tests/integration/client/test_pytest_plugin.py",
    "tests/integration/stories/test_torture.py",
    "tests/integration/wire/test_wire_fuzz.py",
    "tests/differential/",
)


class ByCluster(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist ships no types
    """Tests that share a cluster run in one process: those of a file, and all of Spark's.

    Not ``--dist loadgroup``: pytest-xdist 3.8 writes the groups where pytest 9.2 does not look, so
    that each test would be a group of its own, and each process start every cluster and session.
    """

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return SPARK if scope.startswith(SPARK) else scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByCluster | None:
    """What ``--dist loadfile`` means here."""
    # Without the log it is given, the scheduler prints what it does.
    return ByCluster(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Keep the garbage collector from what lasts until the end: 11,000 tests and their modules.

    It looked at all of them again and again while they were collected, and whenever a test had made
    much: a quarter of the CPU time of collecting, a tenth of that of running. What tests leave is
    found as before.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, where the order is kept (``--no-loadscope-reorder``)."""
    items.sort(
        key=lambda item: next(
            (place for place, name in enumerate(LONGEST) if item.nodeid.startswith(name)),
            len(LONGEST),
        )
    )
