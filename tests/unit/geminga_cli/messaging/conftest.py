"""Commands of messages run against the client's broker in memory, in virtual time."""

from __future__ import annotations

from tests.unit.geminga_cli import client_in_memory

pytest_asyncio_loop_factories = client_in_memory.pytest_asyncio_loop_factories
broker = client_in_memory.broker
client = client_in_memory.client
