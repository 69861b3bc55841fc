"""Proves that EFFECTIVELY_ONCE with state is once: wherever an instance ends, whichever takes over,
the results and the state are those of each input processed once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest
from tests.unit.geminga_functions.instance.brokers_in_memory import Brokers, Client, Step
from tests.unit.geminga_functions.instance.instances_in_memory import (
    INPUTS,
    OUTPUT,
    instance_of,
    state_of,
)

from geminga_functions.errors import InstanceFailed
from geminga_functions.instance import outcome
from geminga_functions.instance.context import Context
from geminga_functions.instance.function_instance import Instance

COUNT = 3  # inputs of each partition
# No story takes longer, in virtual time: partitions move within seconds.
STORY_S = 300.0


def add(value: int, context: Context) -> str:
    """The running sum of all inputs. A result tells which input it is of."""
    before = int(context.get_state("sum") or b"0")
    context.put_state("sum", str(before + value))
    context.incr_counter("count", 1)
    return f"{value}:{before + value}"


def shout(value: int) -> str:
    return f"{value}!"


def publish(brokers: Brokers) -> None:
    """1, 2, 3, ... in both partitions in turn, after what there is."""
    for name in INPUTS * COUNT:
        number = sum(len(brokers.topic(each).messages) for each in INPUTS)
        brokers.topic(name).append(str(number + 1).encode(), None)


def is_done(brokers: Brokers) -> bool:
    topics = [brokers.topic(name) for name in INPUTS]
    return all(len(topic.acknowledged) == len(topic.messages) for topic in topics)


async def done(brokers: Brokers, *instances: Instance) -> None:
    async with asyncio.timeout(STORY_S):
        while not is_done(brokers):
            for instance in instances:
                assert not instance.failure.done(), instance.failure.exception()
            await asyncio.sleep(0.1)


async def live(brokers: Brokers, before: Step, after: Step) -> bool:
    """Run an instance until all is done, or it ends at a step; says whether all is done."""
    client = Client(brokers, before, after)

    async def run() -> None:
        async with state_of(client) as state, instance_of(client, state, add) as instance:
            await done(brokers, instance)

    living, ended = asyncio.create_task(run()), asyncio.create_task(client.has_ended.wait())
    await asyncio.wait([living, ended], return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if not living.done():
        living.cancel()
    with suppress(asyncio.CancelledError):
        await living
    brokers.end(client)
    return is_done(brokers)


async def check_exact(brokers: Brokers) -> None:
    """Every input gave one result, and these are the sums of some order of all inputs, which keeps
    that of each partition."""
    pairs = [str(each.data, "utf-8").split(":") for each in brokers.topic(OUTPUT).messages]
    in_order = sorted((int(total), int(value)) for value, total in pairs)
    values = [value for _, value in in_order]
    assert [total for total, _ in in_order] == [sum(values[: n + 1]) for n in range(len(values))]
    published = range(1, sum(len(brokers.topic(name).messages) for name in INPUTS) + 1)
    for parity in (0, 1):
        of_partition = [number for number in published if number % 2 == parity]
        assert [value for value in values if value % 2 == parity] == of_partition
    async with state_of(Client(brokers), is_alone=False) as state:
        assert state.get("sum") == str(sum(published)).encode()
        assert state.sum_of("count") == len(published)


def at(number: int) -> Step:
    """At the step of this number, of all from 0."""
    steps = iter(range(1000))
    return lambda _: next(steps) == number


def never(_: str) -> bool:
    return False


@pytest.fixture(params=["commits of several inputs", "commits of one input"])
def commits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    title = str(request.param)
    if title == "commits of one input":
        monkeypatch.setattr(outcome, "SLICE_BYTES", 1)
    return title


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "stored without a receipt"])
async def test_an_instance_may_end_at_every_step(commits: str, *, is_lost: bool) -> None:
    first, is_over = 0, False
    while not is_over:
        # The second life ends too, a few steps later; the third one does the rest.
        for second in range(4):
            brokers = Brokers()
            publish(brokers)
            steps = at(first)
            is_over = await live(brokers, *((steps, never) if is_lost else (never, steps)))
            if not is_over and not await live(brokers, at(second), never):
                assert await live(brokers, never, never)
            await check_exact(brokers)
        first += not is_over
    # Each partition is claimed, and each input has a result and an acknowledgement; nothing follows
    # the last one.
    a_partition = 1 if commits == "commits of several inputs" else COUNT
    assert first == 2 * (1 + a_partition + 2 * COUNT) - (not is_lost)


async def test_partitions_move_while_their_owner_stands_still_and_move_back(commits: str) -> None:
    del commits
    brokers = Brokers()
    old, new = Client(brokers), Client(brokers)
    new.is_active = False
    async with AsyncExitStack() as stack:
        old_state = await stack.enter_async_context(state_of(old, 0, is_alone=False))
        first = await stack.enter_async_context(instance_of(old, old_state, add))
        publish(brokers)
        await done(brokers, first)
        # This one reads the lanes, and a minute later what comes now.
        new_state = await stack.enter_async_context(state_of(new, 1, is_alone=False))
        second = await stack.enter_async_context(instance_of(new, new_state, add))
        publish(brokers)
        await done(brokers, first, second)
        # The owner has processed what it cannot commit when it is no owner any more.
        old.may_go.clear()
        publish(brokers)
        await asyncio.sleep(10.0)
        old.is_active, new.is_active = False, True
        await done(brokers, first, second)
        old.may_go.set()
        await asyncio.sleep(0.1)
        assert not first.failure.done()
        await check_exact(brokers)
        # The earlier owner leaves the partitions alone, though it has messages of them.
        assert {
            brokers.topic(each).owner for each in await new.topics("") if "/state-" in each
        } == {new}
        old.is_active, new.is_active = True, False
        publish(brokers)
        await done(brokers, first, second)
        await first.stop()
        await second.stop()
    await check_exact(brokers)


@pytest.mark.parametrize("is_told", [True, False], ids=["known", "unknown"])
async def test_an_owner_whose_claim_was_taken_for_a_moment_processes_again(
    commits: str, *, is_told: bool
) -> None:
    del commits
    brokers = Brokers()
    owner, other = Client(brokers), Client(brokers)
    async with (
        state_of(owner, 0, is_alone=False) as state,
        instance_of(owner, state, add) as instance,
        state_of(other, 1, is_alone=False) as other_state,
    ):
        publish(brokers)
        await done(brokers, instance)
        owner.may_go.clear()
        publish(brokers)
        await asyncio.sleep(2.0)
        for name in INPUTS:
            commit = await other_state.claim(name)
            assert commit is not None
        owner.is_active = not is_told
        owner.may_go.set()
        await asyncio.sleep(2.0)
        owner.is_active = True
        # These do not overtake the ones that it could not commit.
        publish(brokers)
        await done(brokers, instance)
    brokers.end(owner)
    await check_exact(brokers)


async def test_a_failed_input_changes_nothing_in_the_state() -> None:
    def fail_at_3(value: int, context: Context) -> str:
        result = add(value, context)
        if value == 3:
            raise ValueError(value)
        return result

    brokers = Brokers()
    publish(brokers)
    client = Client(brokers)
    async with state_of(client) as state:
        async with instance_of(client, state, fail_at_3) as instance:
            await asyncio.wait([instance.failure], timeout=STORY_S)
            assert isinstance(instance.failure.exception(), InstanceFailed)
        brokers.end(client)
    # What came before the failed one counts, and what comes after it waits.
    assert [each.data for each in brokers.topic(OUTPUT).messages] == [b"1:1"]
    assert await live(brokers, never, never)
    await check_exact(brokers)


async def test_a_function_that_uses_no_state_commits_nothing() -> None:
    brokers = Brokers()
    publish(brokers)
    client = Client(brokers)
    async with state_of(client) as state, instance_of(client, state, shout) as instance:
        await done(brokers, instance)
    assert len(brokers.topic(OUTPUT).messages) == 2 * COUNT
    assert set(brokers.topics) == {*INPUTS, OUTPUT}
