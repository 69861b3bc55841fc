"""Parts run on uvloop, so the tests of what parts share do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from geminga_server.run import uvloop_factory


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The one loop to test on."""
    return {"uvloop": uvloop_factory()}
