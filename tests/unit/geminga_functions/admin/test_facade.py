"""Proves that the leader stores one of two changes of a function that are made at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from geminga_functions.admin.facade import Facade
from geminga_functions.names import FunctionName
from geminga_protocol.functions.functions_pb2 import FunctionMetaData
from geminga_server.rest.errors import RestError

if TYPE_CHECKING:
    from geminga_functions.worker import Worker

NAME = FunctionName("t", "n", "f")
EXISTING = FunctionMetaData(createTime=7, version=7)


class FakeLeadership:
    """It stores a change a moment later, as a topic does."""

    def __init__(self, records: dict[FunctionName, FunctionMetaData]) -> None:
        self._records = records

    async def put(self, name: FunctionName, metadata: FunctionMetaData) -> None:
        await asyncio.sleep(0)
        self._records[name] = metadata

    async def remove(self, name: FunctionName) -> None:
        await asyncio.sleep(0)
        del self._records[name]


@pytest.mark.parametrize(
    ("existing", "first", "second", "is_removal"),
    [
        pytest.param(EXISTING, (7, 8), (7, 8), False, id="updates of one version"),
        pytest.param(EXISTING, (7, 8), (7, 8), True, id="an update and a removal"),
        pytest.param(None, (9, 9), (9, 9), False, id="creates of one moment"),
        pytest.param(None, (9, 9), (10, 10), False, id="creates one after the other"),
    ],
)
async def test_of_two_changes_at_a_time_the_second_one_is_refused(
    existing: FunctionMetaData | None,
    first: tuple[int, int],
    second: tuple[int, int],
    is_removal: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    records = {} if existing is None else {NAME: existing}
    worker = SimpleNamespace(
        functions=SimpleNamespace(records=records), leadership=FakeLeadership(records)
    )
    facade = Facade(cast("Worker", worker))
    changes = [
        FunctionMetaData(createTime=created, version=version)
        for created, version in (first, second)
    ]
    told = await asyncio.gather(
        facade.lead(NAME, changes[0], is_removal=False),
        facade.lead(NAME, changes[1], is_removal=is_removal),
        return_exceptions=True,
    )
    assert told[0] is None
    assert isinstance(told[1], RestError)
    assert "out of date" in str(told[1])
    assert records == {NAME: changes[0]}
