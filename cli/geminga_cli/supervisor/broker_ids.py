"""Under which ids a broker of this data may still have nodes in ZooKeeper: DATA/broker-ids.json,
and DATA/broker-2-ids.json for the second one.

::

    {"version": 1, "broker_ids": ["127.0.0.1:40123", "127.0.0.1:8080"]}

A broker's id is ``host:web port``, so with ports of 0 each life has another. The nodes of a killed
one stay until its session ends, and for so long lookups would name it, unless its successor knows
that they are its own past. Each start adds its id before its broker can make a node, and the
former ones go only when their sessions must be over: a start that is cut short forgets nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from pathlib import Path
from typing import cast

from geminga_cli.whole_file import keep_whole, read_record

FORMAT_VERSION = 1
# ZooKeeper ends the sessions of the dead 6 s after its own start; this is that several times over,
# should it be started again itself.
SESSIONS_OVER_AFTER_S = 30.0
# So many starts in a row may be cut short; more than can be within the life of a session.
IDS_MAX = 16
BROKER_ID = re.compile(r"[^\s,/]+:\d{1,5}")


class BrokerIds:
    """The memory of the broker ``name``, whose id in this life is ``own``; ``others`` are those of
    the brokers that run beside it, which may have what was its id. Writing raises ``OSError``.

    Each broker has a file of its own: two that took over what one dead broker left behind would
    take it from each other.
    """

    def __init__(
        self, directory: Path, name: str, own: str, *, others: Container[str] = frozenset[str]()
    ) -> None:
        self._path = directory / f"{name}-ids.json"
        self._own = own
        former = (one for one in _read(self._path) if one != own and one not in others)
        self.former = tuple(former)[-IDS_MAX + 1 :]

    def begin(self) -> None:
        """Before this life's broker makes its first node."""
        self._write((*self.former, self._own))

    def forget_former(self) -> None:
        """The sessions of former lives are over."""
        self.former = ()
        self.begin()

    def end(self) -> None:
        """This life's broker has closed its session itself."""
        if self.former:
            self._write(self.former)
        else:
            self._path.unlink(missing_ok=True)

    def _write(self, broker_ids: tuple[str, ...]) -> None:
        content = {"version": FORMAT_VERSION, "broker_ids": broker_ids}
        keep_whole(self._path, json.dumps(content) + "\n")


def _read(path: Path) -> list[str]:
    words = read_record(path).get("broker_ids")
    if not isinstance(words, list):
        return []
    return [
        word
        for word in cast("list[object]", words)
        if isinstance(word, str) and BROKER_ID.fullmatch(word)
    ]
