"""The ids under which a broker of this data may still have nodes in ZooKeeper.

They are kept in DATA/broker-ids.json, and in DATA/broker-2-ids.json for the second broker::

    {"version": 1, "broker_ids": ["127.0.0.1:40123", "127.0.0.1:8080"]}

A broker's id is ``host:web port``, so a broker whose port is 0 has another id in each life. The
nodes of a killed broker stay until its session expires. Until then, lookups would name it, unless
its successor knows that these nodes are its own. Each start adds its id before its broker can
create a node, and former ids are removed only when their sessions must have expired: a start that
is interrupted forgets nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from pathlib import Path
from typing import cast

from geminga_cli.whole_file import keep_whole, read_record

FORMAT_VERSION = 1
# ZooKeeper expires the sessions of dead clients 6 s after its own start. This is several times
# that, in case ZooKeeper is restarted meanwhile.
SESSIONS_OVER_AFTER_S = 30.0
# So many starts in a row may be interrupted: more than fit into the life of a session.
IDS_MAX = 16
BROKER_ID = re.compile(r"[^\s,/]+:\d{1,5}")


class BrokerIds:
    """The ids of the broker ``name``. Its methods raise ``OSError``.

    ``own`` is its id in this life; ``others`` are those of the brokers that run beside it, which
    may have an id that was once its own. Each broker has a file of its own: two brokers that both
    took over the nodes of a dead one would take them from each other.
    """

    def __init__(
        self, directory: Path, name: str, own: str, *, others: Container[str] = frozenset[str]()
    ) -> None:
        self._path = directory / f"{name}-ids.json"
        self._own = own
        #     this life begins    former ids + own id     before its broker creates a node
        #     30 s later          own id                  the sessions of former lives have expired
        #     a clean end then    nothing                 its session was closed
        #     a crash             all that was there      the next life finds them
        words = read_record(self._path).get("broker_ids")
        # The file is only a hint: whatever in it is no id is left out.
        known = cast("list[object]", words) if isinstance(words, list) else []
        former = [
            each
            for each in known
            if isinstance(each, str)
            and BROKER_ID.fullmatch(each)
            and each != own
            and each not in others
        ]
        # The ids of former lives, the latest last. The latest are kept, less one place for this
        # life's own.
        self.former = tuple(former)[-IDS_MAX + 1 :]

    def begin(self) -> None:
        """Add this life's id, before its broker creates its first node."""
        self._write((*self.former, self._own))

    def forget_former(self) -> None:
        """Remove the ids of former lives, once their sessions have expired."""
        # In memory too: a broker that is restarted by the supervisor is given no former ids any
        # more.
        self.former = ()
        self.begin()

    def end(self) -> None:
        """Remove this life's id, after its broker has closed its session."""
        # Former ids stay where their sessions may still be alive: a cluster that was stopped within
        # ``SESSIONS_OVER_AFTER_S`` of its start.
        if self.former:
            self._write(self.former)
        else:
            self._path.unlink(missing_ok=True)

    def _write(self, broker_ids: tuple[str, ...]) -> None:
        content = {"version": FORMAT_VERSION, "broker_ids": broker_ids}
        keep_whole(self._path, json.dumps(content) + "\n")
