"""What ``async with`` closes at the end of its block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Open already: entering does nothing, and leaving closes, whatever ended the block."""

    __slots__ = ()

    @abstractmethod
    async def close(self) -> None:
        """Close it. Closing twice is harmless."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
