"""An entry all of whose copies are damaged: how often it is read again, and logged. Pure.

Such an entry becomes readable only when an operator repairs a copy. So frequent retries are of no
use, and since the subscription cannot go on before it, the log must say what the operator can do.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.managed_ledger.positions import Position

# The first pause between two attempts, which doubles up to the limit.
RETRY_FIRST_S = 1.0
RETRY_LIMIT_S = 30.0
# The first attempt is logged, then one in this many: every ten minutes.
ATTEMPTS_PER_LOG_LINE = 20


@dataclass(slots=True)
class DamagedEntry:
    """The attempts to read the entry at ``position``."""

    position: Position
    # Failed reads so far.
    attempts: int = 0
    # Whether the current pause is not over yet.
    is_waiting: bool = False
    # How long the current pause lasts; 0 before the first attempt.
    pause_s: float = 0.0

    def failed_again(self) -> bool:
        """Count one more failed attempt, and begin a pause of ``pause_s``. True if the attempt gets
        a line in the log."""
        self.attempts += 1
        self.is_waiting = True
        # 1, 2, 4, 8, 16 and from then on 30 seconds: twenty of these are ten minutes.
        self.pause_s = min(2 * self.pause_s, RETRY_LIMIT_S) or RETRY_FIRST_S
        return self.attempts % ATTEMPTS_PER_LOG_LINE == 1

    @property
    def way_out(self) -> str:
        """What an operator can do."""
        return (
            f"`geminga bookie-admin verify-ledger {self.position[0]}` names the damaged copies; "
            "the entry is delivered once one of them is whole again; to go on without it, let a "
            "consumer of the subscription seek beyond it"
        )
