"""Proves that a proxy of several processes does not open where one of them cannot serve, and leaves
none of them behind."""

from __future__ import annotations

import os
from pathlib import Path

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


# The first one ends at once. The second has ended for who reads its reports, and lingers.
ONE_ENDS_AND_ONE_LINGERS = """
import os, pickle, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
name, _ = pickle.load(sys.stdin.buffer)
here = Path(__file__).parent
if name == "1":
    while not (here / "lingers").exists():
        time.sleep(0.01)
    time.sleep(0.1)  # the parent has read the end of the other's reports
else:
    (here / "starts").write_text(str(os.getpid()))
    os.close(1)
    (here / "starts").rename(here / "lingers")
    time.sleep(60)
"""


async def test_a_worker_that_lingers_is_gone_when_the_start_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lingering_worker.py").write_text(ONE_ENDS_AND_ONE_LINGERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(workers, "WORKER", "lingering_worker")
    config = ProxyConfig(port=0, workers=2)
    with pytest.raises(ServerStartError):
        await Workers(config, ListedBrokers(config)).__aenter__()
    with pytest.raises(ProcessLookupError):  # neither running nor a zombie
        os.kill(int((tmp_path / "lingers").read_text()), 0)
