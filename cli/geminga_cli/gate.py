"""The gate between a supervisor and a part: the part imports, then waits until it is let go on.

What a part needs (ZooKeeper) takes as long to start as the part's own imports, so both go on at
the same time. A client that comes to ZooKeeper before it is ready loses up to half a second in
retries, and sometimes its whole time-out. The gate is a pipe: a byte means go on, its end means
that the supervisor has died.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module

# Names the descriptor at which a part waits; without a supervisor there is none.
GATE_VARIABLE = "GEMINGA_GATE_DESCRIPTOR"


class Gate:
    """The supervisor's side, shut at first. ``entrance`` is the descriptor the part inherits."""

    def __init__(self) -> None:
        self.entrance, self._lever = os.pipe()

    def variables(self) -> dict[str, str]:
        """What tells the part where it has to wait."""
        return {GATE_VARIABLE: str(self.entrance)}

    def give_entrance_away(self) -> None:
        """The part has inherited its side: we keep only ours."""
        os.close(self.entrance)

    def open(self) -> None:
        """Let the part go on."""
        with suppress(BrokenPipeError):  # it has ended already
            os.write(self._lever, b"\n")

    def close(self) -> None:
        """Give our side back; a part that still waits takes it for our death."""
        os.close(self._lever)


def pass_gate(environment: Mapping[str, str], modules: Sequence[str]) -> bool:
    """The part's side: import ``modules``, then wait. False if nobody will ever let us go on.

    Without a supervisor there is no gate, and nothing is imported that a mistake in the settings
    would make useless.
    """
    words = environment.get(GATE_VARIABLE)
    if words is None:
        return True
    for name in modules:
        import_module(name)
    entrance = int(words)
    try:
        return os.read(entrance, 1) != b""
    finally:
        os.close(entrance)
