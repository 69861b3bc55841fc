"""The retry policy repeats what may be repeated, until its deadline, and nothing else."""

from __future__ import annotations

from random import Random

import pytest

from geminga_ledger.config import LedgerConfig
from geminga_ledger.errors import BookieUnavailable, LedgerError, NoSuchLedger
from geminga_ledger.retry import RetryPolicy
from geminga_simulation.event_loop.clock import SimulatedClock


class Work:
    """Fails with each of ``errors`` in turn, then works."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.attempts = 0

    async def __call__(self) -> int:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return 42


def retry() -> RetryPolicy:
    return RetryPolicy(clock=SimulatedClock(), random=Random(1), config=LedgerConfig())


async def test_what_works_at_last_is_returned() -> None:
    work = Work(BookieUnavailable("b0", "down"), BookieUnavailable("b0", "down"))
    assert await retry().run(work, on=LedgerError, deadline_s=10) == 42
    assert work.attempts == 3


async def test_an_error_that_asking_again_cannot_help_is_raised_at_once() -> None:
    work = Work(NoSuchLedger(7))
    with pytest.raises(NoSuchLedger):
        await retry().run(work, on=LedgerError, deadline_s=10)
    assert work.attempts == 1


async def test_another_kind_of_error_is_raised_at_once() -> None:
    work = Work(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await retry().run(work, on=LedgerError, deadline_s=10)


async def test_after_the_deadline_the_last_error_is_raised() -> None:
    work = Work(*(BookieUnavailable(f"b{number}", "down") for number in range(1000)))
    clock = SimulatedClock()
    before_s = clock.monotonic()
    with pytest.raises(BookieUnavailable):
        await retry().run(work, on=LedgerError, deadline_s=10)
    assert 9 < clock.monotonic() - before_s <= 10
    assert work.attempts > 10
