"""Addresses as they are given on the command line, refused at once where they are none. Pure."""

from __future__ import annotations

import argparse
import re

PORT_MAX = 65_535
# A name, an IPv4 address, or an IPv6 address in brackets; then the port.
_HOST_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", re.ASCII)


def host_port(words: str) -> str:
    """``HOST:PORT`` as it was given. Raises ``ArgumentTypeError``."""
    match = _HOST_PORT.fullmatch(words)
    if match is None or not 0 < int(match[1]) <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"{words!r} is not HOST:PORT, like 127.0.0.1:2181")
    return words


def http_address(words: str) -> str:
    """``HOST:PORT``, also of a URL without a path."""
    return host_port(words.removeprefix("http://").rstrip("/"))


def zookeeper_hosts(words: str) -> str:
    """``HOST:PORT[,HOST:PORT...][/CHROOT]`` as it was given."""
    for each in words.partition("/")[0].split(","):
        host_port(each)
    return words
