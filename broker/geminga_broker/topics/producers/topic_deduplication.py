"""A topic's deduplication as the topic holds it: turned on and off as the policies say.

``Deduplication`` does the work. Most topics never have one.
"""

from __future__ import annotations

import logging
from typing import ClassVar

from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.topics.part import OwningTopic, TopicPart, TopicServices
from geminga_broker.topics.producers.deduplication import CURSOR_NAME, Deduplication, delete_cursor
from geminga_broker.topics.producers.publish_path import PublishPath
from geminga_runtime.errors import GemingaError

log = logging.getLogger(__name__)


class TopicDeduplication(TopicPart):
    """Turns deduplication on and off as the topic's policies say, and has it maintained.

    It sets ``PublishPath.deduplication``, which the path of the messages uses.
    """

    __slots__ = ("_found", "_is_changing", "_is_open", "_services")

    own_cursor: ClassVar[str | None] = CURSOR_NAME

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        self._services = services
        # The stored cursor, from ``adopt`` to ``opened``.
        self._found: Cursor | None = None
        # Loading itself turns deduplication on; background changes begin after that.
        self._is_open = False
        # A task turns deduplication on or off. One at a time: turning it off drops the object, and
        # another task that waits with this object would turn it on beside its successor.
        self._is_changing = False

    # Turning it on and off

    async def adopt(self, cursor: Cursor) -> None:
        """Keep the cursor until ``opened``, when the policies decide what becomes of it."""
        self._found = cursor

    async def opened(self) -> None:
        """Continue from the cursor's snapshot, or delete the cursor if deduplication is off."""
        found, self._found = self._found, None
        # Deduplication may have been turned off while the topic was not loaded: its cursor would
        # keep the log from being trimmed. An error here ends the loading of the topic: served
        # without deduplication it would store repeats, against its policy.
        if self._is_wanted:
            await self._begin(found)
        elif found is not None:
            await delete_cursor(found)
        self._is_open = True

    @property
    def _is_wanted(self) -> bool:
        return self._topic.policies.publishing.deduplicates

    @property
    def is_behind(self) -> bool:
        """Whether deduplication is off though the policies want it on, or the reverse."""
        present = self._topic.part(PublishPath).deduplication
        # Also true while a change is under way.
        return self._is_wanted is not (present is not None and present.is_enabled)

    def apply(self, policies: EffectivePolicies) -> None:
        """Turn deduplication on or off in the background, once the topic is loaded."""
        del policies
        if self._is_open and self.is_behind:
            self._topic.spawn(self._catch_up(), name=f"follow the policies of {self._topic.name}")

    async def _catch_up(self) -> None:
        """Turn deduplication on or off. After an error the next maintenance tries again."""
        # The task that changes it looks at the policies again before it ends.
        if self._is_changing:
            return
        self._is_changing = True
        publishing = self._topic.part(PublishPath)
        try:
            # The policies may change back while a step is awaited.
            while self.is_behind:
                present = publishing.deduplication
                if self._is_wanted:
                    # An attempt before this one may have created the cursor.
                    await self._begin(None if present is None else present.cursor)
                elif present is not None:
                    # First the producers: from now on they append past this step. ``_lead_in`` asks
                    # the policies, which do not want the step any more.
                    publishing.rearrange()
                    await present.disable()
                    publishing.deduplication = None
        except GemingaError as error:
            log.warning(
                "deduplication not changed",
                extra={"log": self._topic.managed_ledger.name, "error": str(error)},
            )
        finally:
            self._is_changing = False

    async def _begin(self, cursor: Cursor | None) -> None:
        topic, services = self._topic, self._services
        publishing = topic.part(PublishPath)
        deduplication = publishing.deduplication
        # One that failed to be turned on is kept: its cursor is open, and is used again. Set before
        # ``enable``, so that ``cursors`` names its cursor to the trimmer as soon as it is open.
        if deduplication is None:
            deduplication = publishing.deduplication = Deduplication(
                topic.managed_ledger,
                services.factory,
                services.clock,
                services.config.publishing,
                cluster=services.cluster,
                enter=topic.enter_cursor,
            )
        await deduplication.enable(cursor)
        # Producers that connected before: their numbers must not be forgotten as idle. No await
        # from here: a producer that connects later is noted by ``PublishPath._welcome``.
        for producer in publishing.producers.by_name.values():
            deduplication.connected(producer)
        # Last: from now on the producers' messages pass this step.
        publishing.rearrange()

    def cursors(self) -> list[Cursor]:
        """The cursor that keeps the snapshots, if deduplication is on."""
        present = self._topic.part(PublishPath).deduplication
        return [] if present is None or present.cursor is None else [present.cursor]

    # Maintenance

    @property
    def needs_maintenance(self) -> bool:
        """Whether deduplication is on, or should be."""
        return self._topic.part(PublishPath).deduplication is not None or self.is_behind

    async def maintain(self) -> None:
        """Take a snapshot that is due, forget producers that are long gone, and retry a failed
        change."""
        # ``apply`` changes something only if an earlier attempt has failed. Snapshots and
        # forgetting first: they do not depend on whether a change is needed.
        policies = self._topic.policies
        deduplication = self._topic.part(PublishPath).deduplication
        if deduplication is not None:
            deduplication.sweep(policies.publishing.snapshot_interval_s)
        self.apply(policies)

    # Ending

    async def close(self) -> None:
        """Store a last snapshot."""
        deduplication = self._topic.part(PublishPath).deduplication
        if deduplication is not None:
            await deduplication.close()

    async def delete(self) -> None:
        """Delete the cursor."""
        publishing = self._topic.part(PublishPath)
        if publishing.deduplication is not None:
            await publishing.deduplication.disable()
            # ``close`` follows, and finds no cursor to store a snapshot with.
            publishing.deduplication = None
