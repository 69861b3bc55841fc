"""Proves that a proxy of several processes does not open where one of them cannot serve."""

from __future__ import annotations

import pytest

from geminga_proxy import workers
from geminga_proxy.brokers import ListedBrokers
from geminga_proxy.config import ProxyConfig
from geminga_proxy.workers import Workers
from geminga_server.errors import ServerStartError

pytestmark = pytest.mark.real_loop


async def test_a_worker_that_ends_before_it_serves_ends_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "WORKER", "geminga_proxy.errors")  # it runs, and ends at once
    config = ProxyConfig(port=0, workers=2)
    with pytest.raises(ServerStartError, match="a worker cannot serve: its log says why"):
        async with Workers(config, ListedBrokers(config)) as opened:
            assert not opened.reports
