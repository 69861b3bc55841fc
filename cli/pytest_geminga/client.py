"""The fixture ``geminga_client``, which needs pytest-asyncio.

The plugin loads this module only in runs that have pytest-asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    import geminga
    from pytest_geminga.clusters import Cluster


@pytest_asyncio.fixture
async def geminga_client(geminga_standalone: Cluster) -> AsyncIterator[geminga.Client]:
    """A client of the shared cluster, open until the test ends.

    It lives in the event loop of the test's fixtures. A test with another ``loop_scope`` must open
    a client itself.
    """
    import geminga  # noqa: PLC0415 - only runs that use it pay for the import

    async with geminga.connect(geminga_standalone.service_url) as client:
        yield client
