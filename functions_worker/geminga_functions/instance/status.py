"""What an instance counts, and what it says of itself when its worker asks.

The numbers are those of upstream's ``FunctionStatus`` and ``MetricsData``
(InstanceCommunication.proto): what REST and the metrics show of a function.
"""

from __future__ import annotations

import json
import traceback
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from geminga_runtime.clock import Clock

# As upstream keeps: enough to see a pattern, and a status stays small.
EXCEPTIONS_KEPT = 10
# A status travels in one message of the channel, with up to twenty of these.
EXCEPTION_CHARACTERS_MAX = 1500
# Names of a function's own metrics; further and longer names are not recorded.
USER_METRICS_MAX = 100
METRIC_NAME_BYTES_MAX = 100
# A message of the channel has 64 KiB; JSON makes six bytes of a character that is not ASCII.
STATUS_BYTES_MAX = 60 * 1024
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class ExceptionReport:
    """An exception, with its traceback, and when it happened."""

    text: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """What happened in a period. ``latency_s`` is the sum for all that were processed."""

    received: int = 0
    processed: int = 0
    user_exceptions: int = 0
    system_exceptions: int = 0
    latency_s: float = 0.0

    @property
    def average_latency_ms(self) -> float:
        """Of one message; 0 where none was processed."""
        return self.latency_s / self.processed * 1000 if self.processed else 0.0

    def since(self, earlier: Numbers) -> Numbers:
        """What happened after ``earlier``."""
        return Numbers(
            self.received - earlier.received,
            self.processed - earlier.processed,
            self.user_exceptions - earlier.user_exceptions,
            self.system_exceptions - earlier.system_exceptions,
            self.latency_s - earlier.latency_s,
        )


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """What an instance says of itself.

    - ``total`` since it started, ``last_minute`` in the last minute that is over.
    - ``written``: how many results were stored in the output topic (by a sink: were written).
    - ``last_invocation_ms``: when the function was last called, since 1970; 0 if it never was.
    - ``user_metrics``: for each name of ``Context.record_metric`` the sum (``NAME_sum``) and how
      often it was recorded (``NAME_count``).
    """

    total: Numbers = field(default_factory=Numbers)
    last_minute: Numbers = field(default_factory=Numbers)
    written: int = 0
    last_invocation_ms: int = 0
    latest_user_exceptions: tuple[ExceptionReport, ...] = ()
    latest_system_exceptions: tuple[ExceptionReport, ...] = ()
    user_metrics: Mapping[str, float] = field(default_factory=dict[str, float])

    def to_json(self) -> str:
        """As ``StatusAnswer`` carries it; without exceptions that would not fit."""
        text = json.dumps(asdict(self), separators=(",", ":"))
        if len(text) > STATUS_BYTES_MAX:
            short = replace(self, latest_user_exceptions=(), latest_system_exceptions=())
            text = json.dumps(asdict(short), separators=(",", ":"))
        return text

    @classmethod
    def from_json(cls, text: str) -> InstanceStatus:
        """The opposite of ``to_json``. Raises ``ValueError``, ``TypeError`` or ``KeyError``."""
        fields: dict[str, Any] = json.loads(text)
        return cls(
            Numbers(**fields["total"]),
            Numbers(**fields["last_minute"]),
            fields["written"],
            fields["last_invocation_ms"],
            tuple(ExceptionReport(**each) for each in fields["latest_user_exceptions"]),
            tuple(ExceptionReport(**each) for each in fields["latest_system_exceptions"]),
            fields["user_metrics"],
        )


class Counters:
    """Counts, for one instance. One thread at a time counts what it does itself."""

    def __init__(self, clock: Clock) -> None:
        self.received = 0
        self.processed = 0
        self.written = 0
        self.user_exceptions = 0
        self.system_exceptions = 0
        self.latency_s = 0.0
        self.last_invocation_ms = 0
        self._clock = clock
        self._latest_user: deque[ExceptionReport] = deque(maxlen=EXCEPTIONS_KEPT)
        self._latest_system: deque[ExceptionReport] = deque(maxlen=EXCEPTIONS_KEPT)
        self._metrics: dict[str, tuple[float, int]] = {}
        self._minute_began_s = clock.monotonic()
        self._minute_began_with = self._last_minute = Numbers()

    def user_exception(self, error: BaseException) -> None:
        """The user's code raised ``error``."""
        self.user_exceptions += 1
        self._latest_user.append(self._report(error))

    def system_exception(self, error: BaseException) -> None:
        """Something failed that is not the user's code: a publish, say."""
        self.system_exceptions += 1
        self._latest_system.append(self._report(error))

    def record_metric(self, name: str, value: float) -> None:
        """Add ``value`` to a metric of the function's own."""
        sum_, count = self._metrics.get(name, (0.0, 0))
        if len(name.encode()) > METRIC_NAME_BYTES_MAX:
            return
        if count or len(self._metrics) < USER_METRICS_MAX:
            self._metrics[name] = (sum_ + value, count + 1)

    def status(self) -> InstanceStatus:
        """The numbers at this moment. Minutes end when they are asked for after their end."""
        total = Numbers(
            self.received,
            self.processed,
            self.user_exceptions,
            self.system_exceptions,
            self.latency_s,
        )
        now_s = self._clock.monotonic()
        if now_s - self._minute_began_s >= MINUTE_S:
            self._last_minute = total.since(self._minute_began_with)
            self._minute_began_s, self._minute_began_with = now_s, total
        metrics = {f"{name}_sum": sum_ for name, (sum_, _) in self._metrics.items()}
        metrics |= {f"{name}_count": float(count) for name, (_, count) in self._metrics.items()}
        return InstanceStatus(
            total,
            self._last_minute,
            self.written,
            self.last_invocation_ms,
            tuple(self._latest_user),
            tuple(self._latest_system),
            metrics,
        )

    def _report(self, error: BaseException) -> ExceptionReport:
        return ExceptionReport(trace_of(error, EXCEPTION_CHARACTERS_MAX), self._clock.wall_ms())


def trace_of(error: BaseException, characters_max: int) -> str:
    """The traceback of ``error``; where it is long, its last lines, which say most."""
    text = "".join(traceback.format_exception(error)).rstrip()[-characters_max:]
    # Half characters (surrogates) may stand in texts of Python's, and not in messages.
    return text.encode(errors="replace").decode()
