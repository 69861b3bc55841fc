"""Topics of a broker that recognizes repeated messages, on simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.unit.geminga_broker.clients_and_logs import resolver_over
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.policies.publish import PublishConfig
from geminga_broker.topics.directory import TopicDirectory
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop


def topics_over(
    coordination: Coordination, ledgers: MemoryLedgers, publishing: PublishConfig
) -> TopicDirectory:
    """The topics of a broker, not open yet; others over the same ``ledgers`` are its successors."""
    factory = logs_over(coordination, ledgers)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return TopicDirectory(
        factory,
        SimulatedClock(loop),
        owns=lambda _: True,
        policies=resolver_over(factory, publishing=publishing),
    )


@asynccontextmanager
async def open_topics(
    coordination: Coordination, ledgers: MemoryLedgers, publishing: PublishConfig
) -> AsyncGenerator[TopicDirectory]:
    """Topics that are open, and may close with whatever the test has left unconfirmed."""
    async with topics_over(coordination, ledgers, publishing) as topics:
        yield topics
        ledgers.is_prompt = True
        for writer in ledgers.writers:
            writer.confirm()
