"""These tests are of real files, sockets and threads: they run on asyncio's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"real": asyncio.new_event_loop}
