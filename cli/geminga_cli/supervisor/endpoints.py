"""Where everything is, for people and programs that look for it: ``DATA/endpoints.json``.

::

    {"version": 1,
     "service_url": "pulsar://127.0.0.1:6650",
     "web_service_url": "http://127.0.0.1:8080",
     "supervisor": {"pid": 70},
     "zookeeper": {"pid": 71, "address": "127.0.0.1:2181", "metrics": "http://127.0.0.1:40123/metrics"},
     "bookie": {"pid": 72, ...},
     "broker": {"pid": 73, ...}}

The file is there while the cluster is ready; it is replaced when a part was restarted, and removed
by a clean stop. Words may be added; ``version`` changes when one changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from geminga_cli.whole_file import read_record, write_whole

FILE_NAME = "endpoints.json"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class PartEndpoints:
    """A running part: its process, and its addresses by what they are for."""

    pid: int | None  # None: somebody else's, such as the user's own ZooKeeper
    addresses: Mapping[str, str]

    def record(self) -> dict[str, object]:
        """As it stands in the file."""
        pid: dict[str, object] = {} if self.pid is None else {"pid": self.pid}
        return pid | dict(self.addresses)


def endpoints_text(supervisor_pid: int, parts: Mapping[str, PartEndpoints]) -> str:
    """The whole file."""
    content: dict[str, object] = {"version": FORMAT_VERSION}
    for name, part, address in (
        ("service_url", "broker", "pulsar"),
        ("web_service_url", "broker", "web"),
    ):
        if part in parts and address in parts[part].addresses:
            content[name] = parts[part].addresses[address]
    content["supervisor"] = {"pid": supervisor_pid}
    content |= {name: part.record() for name, part in parts.items()}
    return json.dumps(content, indent=2) + "\n"


def endpoints_line(parts: Mapping[str, PartEndpoints]) -> str:
    """The same in one line for people: every address with what it is."""
    return "  ".join(
        f"{name}.{purpose}={address}"
        for name, part in parts.items()
        for purpose, address in part.addresses.items()
    )


class EndpointsFile:
    """``DATA/endpoints.json``, replaced as a whole, so that nobody reads half of it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def write(self, text: str) -> None:
        """Replace the content. Raises ``OSError``."""
        write_whole(self._path, text)

    def remove(self) -> None:
        """The addresses hold no longer."""
        self._path.unlink(missing_ok=True)

    def zookeeper_address(self) -> str:
        """Where ZooKeeper is, ``host:port``; empty where the file is not there or does not say."""
        zookeeper = read_record(self._path).get("zookeeper")
        address = zookeeper.get("address") if isinstance(zookeeper, dict) else None
        return address if isinstance(address, str) else ""
