"""An event loop whose clock jumps to the next timer instead of waiting, and a ``Clock`` of it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: where the loop would, its time goes on."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "the test waits for something that never comes"
            self.skipped_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at second 1000; hours pass at once."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return 1000.0 + self._jumping.skipped_s


class LoopClock:
    """The running loop's virtual time."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return int(self.monotonic() * 1000)


LOOP_FACTORIES: Mapping[str, type[VirtualTimeLoop]] = {"virtual": VirtualTimeLoop}
