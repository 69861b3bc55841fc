"""Proves what a broker's process does around the broker: what is said of its health,
and how it asks other clusters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from geminga import Tls
from geminga_broker.broker import Broker
from geminga_broker.errors import StorageUnavailable
from geminga_broker.part import HEALTH_RETRY_S, calls_to_cluster, check_health
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestCall


class AilingBroker:
    """A broker whose bookies take nothing for so many health checks."""

    def __init__(self, failures: int) -> None:
        self.checks = 0
        self.tasks: list[asyncio.Task[None]] = []
        self._failures = failures

    async def check_health(self) -> None:
        self.checks += 1
        if self.checks <= self._failures:
            raise StorageUnavailable("no message went through")

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work, name=name))


async def test_a_broker_whose_bookies_take_nothing_says_so_and_goes_on_trying(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    broker = AilingBroker(failures=4)
    await check_health(cast(Broker, broker))
    assert broker.checks == 1
    assert "topics can only be read" in caplog.text
    (trying,) = broker.tasks
    await asyncio.sleep(2.5 * HEALTH_RETRY_S)
    assert not trying.done()
    await asyncio.wait_for(trying, 10 * HEALTH_RETRY_S)
    assert broker.checks == 5
    assert "messages go through" in caplog.text


async def test_a_healthy_broker_is_checked_once() -> None:
    broker = AilingBroker(failures=0)
    await check_health(cast(Broker, broker))
    assert (broker.checks, broker.tasks) == (1, [])


@pytest.mark.real_loop
async def test_a_cluster_whose_certificates_cannot_be_read_cannot_be_asked(tmp_path: Path) -> None:
    calls = calls_to_cluster(Tls(trust_file=tmp_path / "missing"))
    with pytest.raises(ServerUnreachable, match="missing"):
        await calls.call(RestCall("GET", "https://127.0.0.1:9/"))
