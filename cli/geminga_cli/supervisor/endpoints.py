"""The addresses of all parts, for people and programs: ``DATA/endpoints.json``.

::

    {"version": 1,
     "service_url": "pulsar://127.0.0.1:6650",
     "web_service_url": "http://127.0.0.1:8080",
     "supervisor": {"pid": 70},
     "zookeeper": {"pid": 71, "address": "127.0.0.1:2181", "metrics": "http://127.0.0.1:40123/metrics"},
     "bookie": {"pid": 72, ...},
     "broker": {"pid": 73, ...}, "broker-2": {"pid": 74, ...}}

The two URLs are those of the first proxy, or of the first broker where there is no proxy. The file
exists while the cluster is ready. It is replaced when a part was restarted or added, it leaves out
parts that operators keep down, and a clean stop removes it. Members may be added; ``version``
changes when the meaning of one changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from geminga_cli.whole_file import read_record, write_whole

FILE_NAME = "endpoints.json"
FORMAT_VERSION = 1
# The kinds of parts that clients connect to, the preferred one first.
ENTRANCES = ("proxy", "broker")


@dataclass(frozen=True, slots=True)
class PartEndpoints:
    """A running part."""

    # None for what is no child of the supervisor: the user's own ZooKeeper.
    pid: int | None
    # By purpose: ``pulsar``, ``web``, ``metrics`` and so on.
    addresses: Mapping[str, str]

    def record(self) -> dict[str, object]:
        """The part as it is written in the file."""
        pid: dict[str, object] = {} if self.pid is None else {"pid": self.pid}
        return pid | dict(self.addresses)


def endpoints_text(supervisor_pid: int, parts: Mapping[str, PartEndpoints]) -> str:
    """The whole content of the file."""
    content: dict[str, object] = {"version": FORMAT_VERSION}
    entrance = entrance_of(parts)
    if entrance is not None:
        # Right behind the version: what scripts look for first.
        content["service_url"], content["web_service_url"] = entrance
    content["supervisor"] = {"pid": supervisor_pid}
    content |= {name: part.record() for name, part in parts.items()}
    return json.dumps(content, indent=2) + "\n"


def entrance_of(parts: Mapping[str, PartEndpoints]) -> tuple[str, str] | None:
    """Where clients connect: the URL of the Pulsar protocol, and that of REST.

    They are those of the first proxy, or of the first broker where there is no proxy; None where
    there is neither.
    """
    for kind in ENTRANCES:
        for name, part in parts.items():
            # "broker", or "broker-2" where the first is kept down.
            if name == kind or name.startswith(f"{kind}-"):
                addresses = part.addresses
                # A broker may serve TLS only.
                pulsar = addresses.get("pulsar") or addresses["pulsar_tls"]
                return pulsar, addresses.get("web") or addresses["web_tls"]
    return None


def endpoints_line(parts: Mapping[str, PartEndpoints]) -> str:
    """All addresses in one line for people, each with its part and purpose."""
    return "  ".join(
        f"{name}.{purpose}={address}"
        for name, part in parts.items()
        for purpose, address in part.addresses.items()
    )


class EndpointsFile:
    """``DATA/endpoints.json``, replaced as a whole: a reader never sees half of it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def write(self, text: str) -> None:
        """Replace the content. Raises ``OSError``."""
        write_whole(self._path, text)

    def remove(self) -> None:
        """Remove the file, when its addresses are no longer valid."""
        self._path.unlink(missing_ok=True)

    def zookeeper_address(self) -> str:
        """The address of ZooKeeper, ``host:port``; empty if the file is missing or has none."""
        # The file is another program's as soon as it is edited: nothing in it is trusted to have a
        # type.
        zookeeper = read_record(self._path).get("zookeeper")
        address = zookeeper.get("address") if isinstance(zookeeper, dict) else None
        return address if isinstance(address, str) else ""
