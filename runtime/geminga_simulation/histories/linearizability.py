"""Whether an order of all operations explains their answers, in which each took effect at one
instant between its call and its return.

General, and therefore for small histories: the search of Wing and Gong, "Testing and Verifying
Concurrent Objects" (1993), which remembers what it has tried as Lowe's, "Testing for
Linearizability" (2017). Objects that have nothing to do with each other are checked apart: a
history is linearizable if that of each object is. Long histories of one kind have checkers of their
own (``log``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from geminga_simulation.errors import InvariantViolated

StateT = TypeVar("StateT", bound=Hashable)

# Operations named in an error; more of them tell no more.
OPERATIONS_NAMED_MAX = 6


@dataclass(frozen=True, slots=True)
class Operation:
    """A request of ``client`` and its answer; both times are of one clock.

    An operation in doubt has no answer (``returned_s`` is infinite): it may take effect at any time
    after its call, or never.
    """

    client: str
    called_s: float
    returned_s: float
    # The request with its result; the model knows what they mean.
    what: Hashable

    @property
    def is_in_doubt(self) -> bool:
        """Whether the operation got no answer."""
        return self.returned_s == inf

    def __str__(self) -> str:
        end = "no answer" if self.is_in_doubt else f"{self.returned_s:.6f}"
        return f"{self.client} [{self.called_s:.6f}, {end}] {self.what}"


@dataclass(frozen=True)
class Model(Generic[StateT]):
    """What an object does."""

    initial: StateT
    # The state after an operation; None where it cannot have had its result in the state before.
    step: Callable[[StateT, Hashable], StateT | None]


def check_linearizable(operations: Iterable[Operation], model: Model[StateT]) -> None:
    """Raise ``InvariantViolated`` where no order explains the results of one object's operations.

    Takes time that grows with the number of operations and, by much, with how many of them overlap.
    """
    known = sorted(operations, key=lambda each: each.called_s)
    needed = sum(1 << place for place, each in enumerate(known) if not each.is_in_doubt)
    # Sets of operations are numbers, whose bits are places in ``known``. A pair is the operations
    # that have taken effect, and the state then; each is tried once. Lowe's memory: the same
    # operations done and the same state lead to the same end, in whatever order they were done.
    tried: set[tuple[int, StateT]] = set()
    waiting: list[tuple[int, StateT]] = [(0, model.initial)]
    # For the error: what could not follow the longest order that was found.
    furthest = 0
    while waiting:
        # The last one first: depth first finds an order quickly where there is one.
        done, state = waiting.pop()
        if done & needed == needed:
            return
        if (done & needed).bit_count() > (furthest & needed).bit_count():
            furthest = done
        # What may come next, the most promising last: ``waiting`` gives the last one first.
        reached: list[tuple[int, StateT]] = []
        # Those in doubt are tried last: most that has no answer was not done.
        candidates = sorted(_candidates(known, done), key=lambda place: known[place].is_in_doubt)
        for place in reversed(candidates):
            after = model.step(state, known[place].what)
            if after is None or (after == state and known[place].is_in_doubt):
                continue  # what is in doubt and changes nothing now may change something later
            reached.append((done | 1 << place, after))
            if after == state:
                # An operation that changes nothing can come at once, since no other is the worse
                # for it. Without this, reads that overlap would be tried in every order.
                reached = reached[-1:]
                break
        for each in reached:
            if each not in tried:
                tried.add(each)
                waiting.append(each)
    stuck = [str(known[place]) for place in _candidates(known, furthest)]
    named = "\n  ".join(stuck[:OPERATIONS_NAMED_MAX])
    raise InvariantViolated(
        f"no order explains {len(known)} operations: {(furthest & needed).bit_count()} can be put"
        f" in order, then none of these:\n  {named}"
    )


def _candidates(known: Sequence[Operation], done: int) -> list[int]:
    """The operations that may be next: those called before any other that is left has returned."""
    first_return_s = inf
    found: list[int] = []
    # The lowest bit that ``done`` lacks. All operations before it have taken effect.
    first_left = (~done & (done + 1)).bit_length() - 1
    for place in range(first_left, len(known)):
        each = known[place]
        # ``known`` is sorted by calls, so all behind it were called later still.
        if each.called_s > first_return_s:
            break
        if not done >> place & 1:
            found.append(place)
            first_return_s = min(first_return_s, each.returned_s)
    return found
