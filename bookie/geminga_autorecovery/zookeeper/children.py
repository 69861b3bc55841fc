"""The children of a node that need not be there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from geminga_runtime.coordination import NodeMissing

Children = Callable[[str], Awaitable[list[str]]]
"""``children`` of ``Coordination``, or of ``Watches``, which wakes when they change."""


async def children_of(children: Children, path: str) -> list[str]:
    """The names below ``path``; none where there is no such node. Raises ``CoordinationError``."""
    try:
        return await children(path)
    except NodeMissing:
        return []
