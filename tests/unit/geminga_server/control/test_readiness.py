"""Proves that a service manager is told once a process serves, and that none is needed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from geminga_server.control.readiness import announce_readiness


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_the_manager_is_told_that_all_is_ready_and_where(tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / "notify") if kind == "path" else f"@geminga-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1))
        announce_readiness("pulsar://h:1", {"NOTIFY_SOCKET": name})
        manager.settimeout(10)
        assert manager.recv(4096) == b"READY=1\nSTATUS=pulsar://h:1"


def test_a_manager_that_has_gone_is_no_reason_to_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    announce_readiness("x", {"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert "not told that all is ready" in caplog.text


def test_without_a_manager_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    announce_readiness("x", {})
    assert caplog.text == ""
