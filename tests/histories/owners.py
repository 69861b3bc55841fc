"""Who owned what by ZooKeeper, and who was said to: by answers to lookups, by brokers that take
producers and consumers, by a broker that calls itself the leader.

An answer of a broker that has not heard yet of a change is right if it was right before
(docs/decisions/cluster.md): a claim begins where the
knowledge of the broker ends that made it, at the latest with the question.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.brokers import LEADER_PATH, LeaderBroker
from geminga_protocol.records.cluster.ownership import OWNERSHIP_PATH, BundleOwner
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.ownership import Change, OwnershipHistory


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node's owner has it, or has it no longer, from a moment in that time on."""

    change: Change
    node: Hashable
    owner: str
    called_s: float
    returned_s: float


class Claim(NamedTuple):
    """``client`` was told at some moment in that time that ``owner`` owns something."""

    client: str
    owner: str
    called_s: float
    returned_s: float


class Owners:
    """What all brokers of a cluster own. ``knows_until_s(broker)`` says until when the broker with
    this URL has heard of everything from ZooKeeper."""

    def __init__(self, knows_until_s: Callable[[str], float]) -> None:
        self.knows_until_s = knows_until_s
        self._changes: list[NodeChanged] = []
        self._claims: dict[TopicName, list[Claim]] = {}
        self._leading: list[Claim] = []

    @property
    def claims(self) -> int:
        """How many there are."""
        return sum(map(len, self._claims.values()), len(self._leading))

    def changed(
        self, change: Change, path: str, owner: str, *, called_s: float, returned_s: float
    ) -> None:
        """The node at ``path`` is ``owner``'s, or was until then."""
        node = bundle_at(path) or path
        self._changes.append(NodeChanged(change, node, owner, called_s, returned_s))

    def claim(
        self, client: str, topic: str, owner: str, *, called_s: float, returned_s: float
    ) -> None:
        """``client`` was told that ``owner`` serves ``topic``."""
        claim = Claim(client, owner, called_s, returned_s)
        self._claims.setdefault(TopicName.parse(topic), []).append(claim)

    def leads(self, broker_id: str, *, called_s: float, returned_s: float) -> None:
        """A broker says that it leads all of them."""
        self._leading.append(Claim("observer", broker_id, called_s, returned_s))

    def keep(self, is_kept: Callable[[TopicName, Claim], bool]) -> None:
        """Forget other claims: those of times for which ZooKeeper's record is not known."""
        for topic, claims in self._claims.items():
            self._claims[topic] = [each for each in claims if is_kept(topic, each)]

    def check(self) -> None:
        """Raise ``InvariantViolated`` where a claim was true at no moment of its time."""
        for topic, claims in self._claims.items():
            concerning = [each for each in self._changes if covers(each.node, topic)]
            self._check(f"the owner of {topic}", concerning, claims)
        concerning = [each for each in self._changes if each.node == LEADER_PATH]
        self._check("the leader", concerning, self._leading)

    def _check(self, what: str, changes: list[NodeChanged], claims: list[Claim]) -> None:
        history = OwnershipHistory()
        for each in changes:
            history.change(
                *(each.change, each.node, each.owner),
                called_s=each.called_s,
                returned_s=each.returned_s,
            )
        for claim in claims:
            history.claim(
                *(claim.client, claim.owner),
                called_s=claim.called_s,
                returned_s=claim.returned_s,
            )
        try:
            history.check()
        except InvariantViolated as error:
            raise InvariantViolated(f"{what}: {error}") from None


def bundle_at(path: str) -> Bundle | None:
    """The bundle whose owner stands at ``path``, if one does."""
    if not path.startswith(f"{OWNERSHIP_PATH}/") or path.count("/") != 4:
        return None
    namespace, _, bounds = path.removeprefix(f"{OWNERSHIP_PATH}/").rpartition("/")
    lower, _, upper = bounds.partition("_")
    return Bundle(NamespaceName.parse(namespace), int(lower, 16), int(upper, 16))


def owner_in(path: str, value: bytes) -> str | None:
    """Who stands in a node: a broker's URL for a bundle, its id for the leader; None where the node
    is about something else."""
    if path == LEADER_PATH:
        return LeaderBroker.decode(value).broker_id
    if bundle_at(path) is not None:
        return BundleOwner.decode(value).native_url
    return None


def covers(node: Hashable, topic: TopicName) -> bool:
    """Whether a topic lies in the bundle of a node."""
    return (
        isinstance(node, Bundle) and node.namespace == topic.namespace and node.covers(topic.hash)
    )
