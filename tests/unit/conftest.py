"""What holds for all unit tests: they run in virtual time, and heed the signals they send."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator, Mapping

import pytest

from geminga_simulation.event_loop.loop import SimulatedLoop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the simulated loop: hours pass at once, and every run is the same. The few that
    need real files, sockets or processes are marked ``real_loop``, or say so in the conftest of
    their folder."""
    if item.get_closest_marker("real_loop"):
        return {"real": asyncio.new_event_loop}
    return {"simulated": SimulatedLoop}


@pytest.fixture
def heeded() -> Generator[None]:
    """As in a terminal, however these tests were started: under nohup SIGHUP is ignored, and SIGINT
    in the background of a script."""
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGHUP, hangup)


@pytest.fixture
def ignored() -> Generator[None]:
    """As a user wants it who starts it with nohup, or in the background of a script."""
    numbers = (signal.SIGINT, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
