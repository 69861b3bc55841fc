"""What the log of a topic must know of it: which cursors hold ledgers, where reading goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga_broker.log.cursor import Cursor
from geminga_broker.log.positions import Position
from geminga_broker.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from geminga_broker.topics.persistent import PersistentTopic


class TopicReadership:
    """``Readership`` of a topic: its subscriptions, and what it keeps a cursor for itself."""

    __slots__ = ("_topic",)

    def __init__(self, topic: PersistentTopic) -> None:
        self._topic = topic

    def cursors(self) -> list[Cursor]:
        """All cursors."""
        kept = self._topic.intake.cursor
        return [*self._topic.cursors(), *([kept] if kept is not None else [])]

    def reads_from(self) -> Position | None:
        """The least position that some subscription has still to be sent; None without any."""
        subscriptions = self._topic.subscriptions.values()
        return min((_reads_from(each) for each in subscriptions), default=None)


def _reads_from(subscription: Subscription) -> Position:
    dispatcher = subscription.dispatcher
    if dispatcher is None or not dispatcher.consumers:
        return subscription.mark_delete
    return dispatcher.wanted_from
