"""Where everything is, for people and programs that look for it: ``DATA/endpoints.json``.

::

    {"version": 1,
     "service_url": "pulsar://127.0.0.1:6650",
     "web_service_url": "http://127.0.0.1:8080",
     "supervisor": {"pid": 70},
     "zookeeper": {"pid": 71, "address": "127.0.0.1:2181", "metrics": "http://127.0.0.1:40123/metrics"},
     "bookie": {"pid": 72, ...},
     "broker": {"pid": 73, ...}, "broker-2": {"pid": 74, ...}}

The two URLs are those of the first proxy, or of the first broker where there is no proxy. The file
is there while the cluster is ready; it is replaced when a part was restarted or added, a part that
an operator keeps down is left out of it, and a clean stop removes it. Words may be added;
``version`` changes when one changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from geminga_cli.whole_file import read_record, write_whole

FILE_NAME = "endpoints.json"
FORMAT_VERSION = 1
# The kinds of parts that clients connect to, the better first.
ENTRANCES = ("proxy", "broker")


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
    entrance = entrance_of(parts)
    if entrance is not None:
        content["service_url"], content["web_service_url"] = entrance
    content["supervisor"] = {"pid": supervisor_pid}
    content |= {name: part.record() for name, part in parts.items()}
    return json.dumps(content, indent=2) + "\n"


def entrance_of(parts: Mapping[str, PartEndpoints]) -> tuple[str, str] | None:
    """Where clients come in: the URL of the Pulsar protocol and that of REST, of the first proxy,
    or of the first broker where there is no proxy; None where there is neither."""
    for kind in ENTRANCES:
        for name, part in parts.items():
            if name == kind or name.startswith(f"{kind}-"):
                addresses = part.addresses
                # A broker may serve TLS alone.
                pulsar = addresses.get("pulsar") or addresses["pulsar_tls"]
                return pulsar, addresses.get("web") or addresses["web_tls"]
    return None


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
