"""A node is claimed by the first, taken over from our own past, and otherwise left alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga_cluster.claims import Claim, claim
from geminga_cluster.errors import RecordContended
from geminga_runtime.coordination import Coordination

PATH = "/claims/one"


async def claimed(
    coordination: Coordination,
    value: bytes,
    *,
    past: bytes = b"past",
    seen: list[str] | None = None,
) -> Claim:
    """Claim ``PATH``; nodes of value ``past`` are our own past's."""
    told = [] if seen is None else seen
    return await claim(
        coordination,
        PATH,
        value,
        is_stale=lambda found: found == past,
        on_change=lambda: told.append("changed"),
    )


async def test_a_free_node_is_ours_with_its_parents(coordination: Coordination) -> None:
    node = await claimed(coordination, b"me")
    assert node.is_ours
    assert node.value == b"me"
    assert node.stat.ephemeral_owner == coordination.session_id


async def test_a_claim_repeated_is_still_ours(coordination: Coordination) -> None:
    first = await claimed(coordination, b"me")
    assert await claimed(coordination, b"me") == first


async def test_a_node_of_another_session_is_left_alone(
    coordination: Coordination, session: Callable[[str], Coordination]
) -> None:
    other = await claimed(session("other"), b"other")
    node = await claimed(coordination, b"me")
    assert not node.is_ours
    assert (node.value, node.stat) == (b"other", other.stat)


async def test_a_node_of_an_earlier_life_is_taken_over_at_once(
    coordination: Coordination, session: Callable[[str], Coordination]
) -> None:
    before = await claimed(session("killed"), b"past")
    node = await claimed(coordination, b"me")
    assert node.is_ours
    assert node.value == b"me"
    assert node.stat.created_zxid > before.stat.created_zxid


async def test_a_loss_is_told(
    coordination: Coordination,
    session: Callable[[str], Coordination],
    settle: Callable[[], Awaitable[None]],
) -> None:
    seen: list[str] = []
    await claimed(coordination, b"me", seen=seen)
    await session("other").delete(PATH)
    await settle()
    assert seen == ["changed"]


async def test_a_node_that_frees_itself_is_told(
    coordination: Coordination,
    session: Callable[[str], Coordination],
    expire: Callable[[str], Awaitable[None]],
    settle: Callable[[], Awaitable[None]],
) -> None:
    seen: list[str] = []
    await claimed(session("other"), b"other")
    await claimed(coordination, b"me", seen=seen)
    await expire("other")
    await settle()
    assert seen == ["changed"]
    assert (await claimed(coordination, b"me")).is_ours


async def test_an_endless_quarrel_ends(
    coordination: Coordination,
    session: Callable[[str], Coordination],
    meddle: Callable[[str, bytes], None],
) -> None:
    await claimed(session("killed"), b"past")

    def is_stale(found: bytes) -> bool:
        meddle(PATH, b"past")  # it changes after every look
        return found == b"past"

    with pytest.raises(RecordContended):
        await claim(coordination, PATH, b"me", is_stale=is_stale, on_change=lambda: None)
