"""How well the simulated machinery works: delays, limits and probabilities, each with a unit.

A network, a disk or a coordination service is given them, and may be given others while it runs.
What breaks outright and when (crashes, partitions, resets) is in the fault menu.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


class Conditions:
    """Base of the dataclasses below: refuses negative values, and probabilities above 1."""

    __slots__ = ()

    def __post_init__(self) -> None:
        # By names: a field that ends in ``_probability`` is one, whatever subclass it is in.
        for field in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, field.name)
            if not isinstance(value, (int, float)):
                continue
            if field.name.endswith("_probability") and not 0 <= value <= 1:
                raise ValueError(f"{field.name} must lie between 0 and 1, not {value}")
            if value < 0:
                raise ValueError(f"{field.name} must not be negative, not {value}")


@dataclass(frozen=True, slots=True)
class NetworkConditions(Conditions):
    """One network's links. Loss inside a stream is what TCP makes of it: a late chunk, or a reset.

    A chunk takes ``delay_s_min`` to ``delay_s_max``; with ``late_probability`` it was lost once and
    comes up to ``late_s_max`` later (and all behind it, for streams keep their order). It arrives
    cut in two with ``cut_probability`` and together with its successor with ``merge_probability``.
    ``window_bytes`` may be under way unread before the sender's own buffer fills. Bytes that cannot
    be delivered for ``give_up_s`` break the connection for their sender; a connection attempt
    without an answer ends after ``connect_timeout_s``.
    """

    # Hosts in one rack.
    delay_s_min: float = 0.000_05
    delay_s_max: float = 0.000_5
    late_probability: float = 0.0
    # About TCP's shortest retransmission time-outs (200 ms on Linux), with some room.
    late_s_max: float = 0.3
    cut_probability: float = 0.0
    merge_probability: float = 0.0
    window_bytes: int = 256 * 1024
    # Linux gives up after some 15 minutes by default (``tcp_retries2``): no story waits so long.
    give_up_s: float = 60.0
    connect_timeout_s: float = 20.0


@dataclass(frozen=True, slots=True)
class DiskConditions(Conditions):
    """One disk. Probabilities are per operation.

    Writes take up to ``access_s_max``. So do reads of what is, with ``uncached_probability``, not
    in the page cache; other reads take no time and do not let go of the loop. Syncs take
    ``sync_s_min`` to ``sync_s_max``. With ``slow_probability`` any of them takes up to
    ``slow_s_max`` (a stall). ``write_error_probability`` gives EIO, ``full_probability`` ENOSPC,
    ``read_error_probability`` EIO; ``sync_error_probability`` EIO from a sync, whose bytes may
    never reach the disk although a later sync succeeds (Linux marks the pages clean). After a crash
    the sectors of an unsynced tail are, with ``torn_probability``, missing each by its own chance.
    """

    # A write to the page cache; a sync of a solid-state disk with a protected cache.
    access_s_max: float = 0.000_02
    uncached_probability: float = 0.1
    sync_s_min: float = 0.000_1
    sync_s_max: float = 0.000_4
    slow_probability: float = 0.0
    slow_s_max: float = 0.5
    read_error_probability: float = 0.0
    write_error_probability: float = 0.0
    sync_error_probability: float = 0.0
    full_probability: float = 0.0
    torn_probability: float = 0.5


@dataclass(frozen=True, slots=True)
class CoordinationConditions(Conditions):
    """The coordination service as its clients see it.

    Each way takes ``delay_s_min`` to ``delay_s_max``. A session that is not heard of for its
    time-out is expired. With ``loss_probability`` an operation ends with ``ConnectionLost``, done
    or not; one that changes something besides with ``write_loss_probability``. The session then
    reconnects within ``reconnect_s_max``. With ``late_probability`` an operation, and all behind
    it, comes up to ``late_s_max`` later.
    """

    delay_s_min: float = 0.000_2
    delay_s_max: float = 0.001
    loss_probability: float = 0.0
    write_loss_probability: float = 0.0
    late_probability: float = 0.0
    late_s_max: float = 0.5
    reconnect_s_max: float = 0.5


# Each answer comes in the instant of its request: for tests of which requests are made, and in what
# order, where no time need pass.
INSTANT = CoordinationConditions(delay_s_min=0.0, delay_s_max=0.0, reconnect_s_max=0.0)
