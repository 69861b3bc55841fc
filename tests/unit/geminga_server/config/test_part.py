"""What a part is told of ZooKeeper reaches its client."""

from __future__ import annotations

import pytest

from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import ConnectionLost
from geminga_server.config import PartConfig, zookeeper_hosts
from geminga_server.config.loading import load_config
from geminga_server.errors import ConfigError
from geminga_server.run import StopRequest


async def test_the_client_uses_the_address_and_the_time_out_of_the_settings() -> None:
    config = PartConfig(zookeeper="127.0.0.1:1", zookeeper_connect_timeout_s=0.01)
    with pytest.raises(ConnectionLost, match=r"no ZooKeeper answered at 127.0.0.1:1 within 0.01 s"):
        async with config.zookeeper_client(SystemClock(), StopRequest()):
            pass


@pytest.mark.parametrize("name", ["zookeeper_session_timeout_s", "zookeeper_connect_timeout_s"])
def test_a_time_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", "-")):
        load_config(PartConfig, "part", environment={}, flags={name: 0})


@pytest.mark.parametrize(
    ("store", "hosts"),
    [
        ("zk:a:2181", "a:2181"),
        ("zk:a:1,b:2/chroot", "a:1,b:2/chroot"),
        ("a:2181", "a:2181"),
        ("metadata-store:zk:a:2181", "a:2181"),
        ("zk://a:2181", "a:2181"),
        ("", ""),
    ],
)
def test_a_metadata_store_is_written_in_many_ways(store: str, hosts: str) -> None:
    assert zookeeper_hosts(store) == hosts
