"""How long to wait before trying again: exponential, bounded, with jitter."""

from __future__ import annotations

from random import Random


class Backoff:
    """Successive delays in seconds: ``first_s``, doubled each time up to ``limit_s``.

    Each delay is drawn from the upper half of that, so that many clients which failed together do
    not come back together. The random source is a parameter, so that a simulation repeats.
    """

    def __init__(self, first_s: float, limit_s: float, random: Random) -> None:
        assert 0 < first_s <= limit_s
        # Seconds.
        self._first_s = first_s
        self._limit_s = limit_s
        self._random = random
        # The longest that the next delay may be.
        self._next_s = first_s

    def next_s(self) -> float:
        """The next delay in seconds."""
        # Doubled before the attempt is made: a caller that succeeds calls ``reset``.
        ceiling = self._next_s
        self._next_s = min(self._limit_s, ceiling * 2)
        return ceiling * (0.5 + self._random.random() / 2)

    def reset(self) -> None:
        """Begin again with the first delay: the last attempt went well."""
        self._next_s = self._first_s
