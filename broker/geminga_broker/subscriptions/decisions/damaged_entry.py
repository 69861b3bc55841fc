"""An entry of which every copy is damaged: how often a dispatcher tries it again, and tells of it.

It comes back only if somebody repairs a copy, so that trying often helps nobody; and a subscription
that stands before it stands until somebody does something, so that it must be told how. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.managed_ledger.positions import Position

# The first pause, which doubles up to the limit.
RETRY_FIRST_S = 1.0
RETRY_LIMIT_S = 30.0
# It is told of at the first attempt, then at each of so many: every ten minutes.
ATTEMPTS_PER_TELLING = 20


@dataclass(slots=True)
class DamagedEntry:
    """What is known of the entry at ``position``: read in vain so often, and left alone for now
    while ``is_waiting``."""

    position: Position
    attempts: int = 0
    is_waiting: bool = False
    pause_s: float = 0.0

    def failed_again(self) -> None:
        """Count one more attempt: from now on the entry is left alone for ``pause_s``."""
        self.attempts += 1
        self.is_waiting = True
        self.pause_s = min(2 * self.pause_s, RETRY_LIMIT_S) or RETRY_FIRST_S

    @property
    def is_to_be_told(self) -> bool:
        """Whether the log should have a line of the attempt counted last."""
        return self.attempts % ATTEMPTS_PER_TELLING == 1

    @property
    def way_out(self) -> str:
        """What an operator can do."""
        return (
            f"`geminga bookie-admin verify-ledger {self.position[0]}` names the damaged copies; "
            "the entry is delivered once one of them is whole again; to go on without it, let a "
            "consumer of the subscription seek beyond it"
        )
