"""Bugs planted in how policies and bundles are changed."""

from __future__ import annotations

from typing import Any

import pytest

from geminga_broker.topic_policies.store import Change, TopicPolicyStore
from geminga_cluster.namespaces import Namespaces
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.coordination import Coordination, NodeStat


class _Unversioned:
    """Coordination whose values are replaced whatever their version is."""

    def __init__(self, honest: Coordination) -> None:
        self._honest = honest

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)

    async def set(self, path: str, value: bytes, *, version: int) -> NodeStat:
        del version
        return await self._honest.set(path, value)


def cut_whatever_was_cut_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """Of bundles that two brokers cut at the same time, one is whole again."""
    honest = Namespaces.cut_bundle

    async def cut(namespaces: Namespaces, *told: Any) -> None:
        if not isinstance(namespaces._coordination, _Unversioned):
            patch.setattr(namespaces, "_coordination", _Unversioned(namespaces._coordination))
        await honest(namespaces, *told)

    patch.setattr(Namespaces, "cut_bundle", cut)


def change_what_was_read_before(patch: pytest.MonkeyPatch) -> None:
    """Who changes what a topic says changes what it said before the change that came first."""
    honest = TopicPolicyStore.change

    async def change(store: TopicPolicyStore, topic: TopicName, change: Change) -> None:
        said = await store.local(topic)
        await honest(store, topic, lambda _: change(said))

    patch.setattr(TopicPolicyStore, "change", change)
