"""What clients of our own library sent and received during a siege, and what the checkers of
histories say of it: the same as in simulations (``tests.histories``).

The commands are noted as they pass, and looked at when all is over: only then it is known who owned
what, and how long. ZooKeeper is asked now and then. Between two answers that name one node, with
one generation, there was one owner; of other times nothing is known, and nothing demanded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.histories.client_histories import ClientHistories, Conversation
from tests.histories.listening import Ear, ListeningNetwork
from tests.histories.owners import Claim, Owners, bundle_at, covers
from tests.torture.evidence.owners import Poll

from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.ownership import OWNERSHIP_PATH
from geminga_runtime.network import Network
from geminga_simulation.histories.ownership import Change

# A broker that reaches ZooKeeper, and its messages, are no later than this on a busy machine.
LATE_S = 5.0


class Heard(NamedTuple):
    """A command on a stream, and when it passed."""

    at_s: float
    stream: int
    is_sent: bool
    frame: bytes


class Journal:
    """The streams of all clients, by number: who talks to which broker; and what was said."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.streams: list[tuple[str, str]] = []
        self.heard: list[Heard] = []
        self.now_s = now_s

    def network(self, network: Network, client: str) -> Network:
        """``network`` for ``client``, of which all is noted."""
        return ListeningNetwork(network, lambda host, port: self.listen_to(client, host, port))

    def listen_to(self, client: str, host: str, port: int) -> Ear:
        """Note what passes a new stream."""
        self.streams.append((client, f"pulsar://{host}:{port}"))
        return _Ear(self, len(self.streams) - 1)


class _Ear:
    def __init__(self, journal: Journal, stream: int) -> None:
        self._journal = journal
        self._stream = stream

    def sent(self, frame: bytes) -> None:
        self._journal.heard.append(Heard(self._journal.now_s(), self._stream, True, frame))  # noqa: FBT003

    def received(self, frame: bytes) -> None:
        self._journal.heard.append(Heard(self._journal.now_s(), self._stream, False, frame))  # noqa: FBT003


@dataclass(frozen=True, slots=True)
class Reign:
    """A time throughout which the node of ``bundle`` was that of the broker with this URL."""

    bundle: str
    broker: str
    begin_s: float
    end_s: float

    def is_of(self, topic: TopicName) -> bool:
        """Whether the topic lies in the bundle."""
        return covers(bundle_at(f"{OWNERSHIP_PATH}/{self.bundle}"), topic)


def reigns(polls: Sequence[Poll]) -> list[Reign]:
    """The times of which it is certain who owned what, by bundles and in their order."""
    found: list[Reign] = []
    for bundle in sorted({bundle for poll in polls for bundle in poll.nodes}):
        first = last = None
        for poll in (*polls, None):
            node = None if poll is None else poll.nodes.get(bundle)
            if first is not None and last is not None and node != first.nodes[bundle]:
                owner = first.nodes[bundle].url
                if first.ended_s < last.began_s:
                    found.append(Reign(bundle, owner, first.ended_s, last.began_s))
                first = None
            if first is None and node is not None:
                first = poll
            last = poll
    return found


def histories_of(journal: Journal, polls: Sequence[Poll] | None) -> ClientHistories:
    """What the checkers are to judge. Without ``polls`` there is one broker, of which a former life
    is dead before the next one begins."""
    certain = reigns(polls or ())
    owners = Owners(lambda _: float("inf"))
    for each in certain:
        for change, at_s in ((Change.ACQUIRED, each.begin_s), (Change.RELEASED, each.end_s)):
            path = f"{OWNERSHIP_PATH}/{each.bundle}"
            owners.changed(change, path, each.broker, called_s=at_s, returned_s=at_s)
    now_s = 0.0

    def has_former_owner(topic: str, broker: str) -> bool:
        name = TopicName.parse(topic)
        return polls is not None and not any(
            each.broker == broker and each.begin_s + LATE_S <= now_s <= each.end_s
            for each in certain
            if each.is_of(name)
        )

    histories = ClientHistories(lambda: now_s, owners, has_former_owner=has_former_owner)
    conversations = [Conversation(histories, *stream) for stream in journal.streams]
    for heard in journal.heard:
        now_s = heard.at_s
        conversation = conversations[heard.stream]
        (conversation.sent if heard.is_sent else conversation.received)(heard.frame)

    def is_certain(topic: TopicName, claim: Claim) -> bool:
        return any(
            each.begin_s + LATE_S <= claim.called_s and claim.returned_s <= each.end_s
            for each in certain
            if each.is_of(topic)
        )

    owners.keep(is_certain)
    return histories
