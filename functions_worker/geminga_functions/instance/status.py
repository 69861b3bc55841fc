"""The counts of an instance, and the status that it reports to its worker.

The numbers are those of upstream's ``FunctionStatus`` and ``MetricsData``
(InstanceCommunication.proto), which REST and the metrics show.
"""

from __future__ import annotations

import json
import traceback
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from geminga_runtime.clock import Clock

# Of the user's code, and as many of the system, as upstream keeps: enough to see a pattern, while a
# status stays small.
EXCEPTIONS_KEPT = 10
# A status, with up to twenty exceptions, is one message of the channel to the worker.
EXCEPTION_CHARACTERS_MAX = 1500
# Metrics of a function, and the length of their names; others are not recorded.
USER_METRICS_MAX = 100
METRIC_NAME_BYTES_MAX = 100
# A longer status leaves out its exceptions. In JSON a character that is not ASCII takes six bytes,
# so twenty exceptions may take more.
STATUS_BYTES_MAX = 60 * 1024
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class ExceptionReport:
    """An exception, with its traceback, and when it happened."""

    text: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """The counts of a period."""

    received: int = 0
    processed: int = 0
    user_exceptions: int = 0
    system_exceptions: int = 0
    # The sum of the times that the processed messages took.
    latency_s: float = 0.0

    @property
    def average_latency_ms(self) -> float:
        """The average time that a message took; 0 if none was processed."""
        return self.latency_s / self.processed * 1000 if self.processed else 0.0

    def since(self, earlier: Numbers) -> Numbers:
        """The counts of the period from ``earlier`` to these."""
        return Numbers(
            self.received - earlier.received,
            self.processed - earlier.processed,
            self.user_exceptions - earlier.user_exceptions,
            self.system_exceptions - earlier.system_exceptions,
            self.latency_s - earlier.latency_s,
        )


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """The counts of an instance at one moment, as it reports them."""

    # Since the instance started, and in the last minute that has ended.
    total: Numbers = field(default_factory=Numbers)
    last_minute: Numbers = field(default_factory=Numbers)
    # How many results were stored in the output topic; of a sink, how many messages it has written.
    written: int = 0
    # When the function was last called, in milliseconds since 1970; 0 if it never was.
    last_invocation_ms: int = 0
    latest_user_exceptions: tuple[ExceptionReport, ...] = ()
    latest_system_exceptions: tuple[ExceptionReport, ...] = ()
    # For each name of ``Context.record_metric`` the sum of the values (``NAME_sum``), and how many
    # there were (``NAME_count``).
    user_metrics: Mapping[str, float] = field(default_factory=dict[str, float])

    def to_json(self) -> str:
        """Encode the status for a ``StatusAnswer``, without its exceptions if it is too long."""
        text = json.dumps(asdict(self), separators=(",", ":"))
        # Exceptions are what may be long; the counts are needed by REST and the metrics.
        if len(text) > STATUS_BYTES_MAX:
            short = replace(self, latest_user_exceptions=(), latest_system_exceptions=())
            text = json.dumps(asdict(short), separators=(",", ":"))
        return text

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> InstanceStatus:
        """The status with these fields, parsed from what ``to_json`` made.

        Raises ``TypeError`` or ``KeyError`` for other fields.
        """
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
    """The running counts of one instance.

    There are no locks: each count but one is changed by one thread at a time, and a status may be a
    little behind.
    """

    def __init__(self, clock: Clock) -> None:
        # What concerns calls of the user's code is counted in its thread, or on the loop where it
        # is asynchronous; ``written`` on the loop, as receipts come. ``system_exceptions`` come
        # from both: two at the same moment may count as one.
        self.received = 0
        self.processed = 0
        self.written = 0
        self.user_exceptions = 0
        self.system_exceptions = 0
        self.latency_s = 0.0
        self.last_invocation_ms = 0
        self._clock = clock
        # The oldest report leaves when another one comes: a deque with ``maxlen`` drops it by
        # itself.
        self._latest_user: deque[ExceptionReport] = deque(maxlen=EXCEPTIONS_KEPT)
        self._latest_system: deque[ExceptionReport] = deque(maxlen=EXCEPTIONS_KEPT)
        # The sum and the number of recorded values, by the name of the metric.
        self._metrics: dict[str, tuple[float, int]] = {}
        # When the current minute began, the counts at that moment, and those of the minute before.
        self._minute_began_s = clock.monotonic()
        self._minute_began_with = self._last_minute = Numbers()

    def user_exception(self, error: BaseException) -> None:
        """Count an exception that the user's code raised."""
        self.user_exceptions += 1
        self._latest_user.append(self._report(error))

    def system_exception(self, error: BaseException) -> None:
        """Count a failure outside of the user's code, such as that of a publish."""
        self.system_exceptions += 1
        self._latest_system.append(self._report(error))

    def record_metric(self, name: str, value: float) -> None:
        """Add ``value`` to a metric of the function."""
        sum_, count = self._metrics.get(name, (0.0, 0))
        # Dropped in silence: an error would fail the message for the sake of a number.
        if len(name.encode()) > METRIC_NAME_BYTES_MAX:
            return
        # A known metric is updated even where there are as many as there may be.
        if count or len(self._metrics) < USER_METRICS_MAX:
            self._metrics[name] = (sum_ + value, count + 1)

    def status(self) -> InstanceStatus:
        """The counts at this moment.

        A minute ends with the first call after its time: it may be longer than a minute.
        """
        # Read one after the other while another thread counts: ``processed`` may be ahead of
        # ``received`` by the messages of that moment.
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
            # The next minute begins with this call, and not when the last one was over.
            self._minute_began_s, self._minute_began_with = now_s, total
        # Copied in one step, which other threads cannot divide: the function may add a name at any
        # moment, and a dictionary that grows cannot be iterated. Sums and counts belong together.
        recorded = self._metrics.copy()
        metrics = {f"{name}_sum": sum_ for name, (sum_, _) in recorded.items()}
        metrics |= {f"{name}_count": float(count) for name, (_, count) in recorded.items()}
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
    """The traceback of ``error``, of which a long one loses its beginning: its end says most."""
    text = "".join(traceback.format_exception(error)).rstrip()[-characters_max:]
    # A Python string may hold half a surrogate pair, which UTF-8 cannot encode.
    return text.encode(errors="replace").decode()
