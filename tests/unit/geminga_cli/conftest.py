"""These tests run on uvloop, as the supervisor does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from geminga_server.run import uvloop_factory


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop_factory()}
