"""The gate between a supervisor and a part: the part imports its modules, then waits for release.

A part's imports take as long as the start of what it needs (ZooKeeper), so both run at the same
time. The part must not connect earlier: a client that reaches ZooKeeper before it is ready loses up
to half a second in retries, and sometimes its whole time-out.

The gate is a pipe. A byte in it releases the part; the end of the pipe means that the supervisor
died, and that the part will never be released.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module

# Holds the descriptor that a part reads from. Without a supervisor the variable is not set.
GATE_VARIABLE = "GEMINGA_GATE_DESCRIPTOR"


#     supervisor                         part
#     os.pipe ── the read end ──────────▶ inherits it (GEMINGA_GATE_DESCRIPTOR)
#     closes its copy                     imports its modules, then reads one byte: waits
#     writes "\n" when the needs           the byte: it begins to serve
#       of the part are ready
#     dies                                the end of the pipe: it ends
class Gate:
    """The supervisor's side, shut at first."""

    def __init__(self) -> None:
        # ``entrance`` is the end that the part inherits and reads.
        self.entrance, self._write_end = os.pipe()

    def variables(self) -> dict[str, str]:
        """The environment variables that tell the part where to wait."""
        return {GATE_VARIABLE: str(self.entrance)}

    def give_entrance_away(self) -> None:
        """Close our copy of ``entrance`` once the part has inherited its own.

        With our copy open, the part would not see the end of the pipe when we die.
        """
        os.close(self.entrance)

    def open(self) -> None:
        """Release the part."""
        with suppress(BrokenPipeError):  # the part has ended already
            os.write(self._write_end, b"\n")

    def close(self) -> None:
        """Close our side. A part that still waits ends, as if the supervisor had died."""
        os.close(self._write_end)


def pass_gate(environment: Mapping[str, str], modules: Sequence[str]) -> bool:
    """The part's side: import ``modules``, then wait for release; False if it will never come.

    Without a supervisor there is no gate. Then nothing is imported either: a mistake in the
    settings should be reported without loading the whole part first.
    """
    descriptor = environment.get(GATE_VARIABLE)
    if descriptor is None:
        return True
    # This is what makes waiting worthwhile.
    for name in modules:
        import_module(name)
    # One byte, or the end of the pipe; the read waits for either.
    entrance = int(descriptor)
    try:
        return os.read(entrance, 1) != b""
    finally:
        os.close(entrance)
