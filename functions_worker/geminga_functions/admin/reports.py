"""Reports on instances: as one worker sends them to another, and as REST shows them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geminga_functions.instance.status import ExceptionReport, InstanceStatus, Numbers
from geminga_functions.runtime.reports import InstanceReport, InstanceState

# The JSON of an answer.
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """An instance as its worker sees it, or why nothing is known of it."""

    # Empty where the instance is on no worker yet. Either ``error`` is set, or the other fields are
    # those of a report.
    worker_id: str = ""
    state: str = ""
    restarts: int = 0
    # The trace of its last failure, and whether the function is to blame for it.
    failure: str = ""
    is_user_error: bool = False
    # Its counts; None if the instance does not answer.
    status: InstanceStatus | None = None
    # Why nothing is known of the instance, with all other fields empty.
    error: str = ""

    @property
    def is_running(self) -> bool:
        """Whether the instance processes messages."""
        return self.state == InstanceState.RUNNING

    @property
    def why_not(self) -> str:
        """Why the instance does not run; empty if it does."""
        if self.is_running:
            return ""
        # The last failure says more than the state that followed it.
        return self.error or self.failure or (f"it is {self.state}" if self.state else "")

    @classmethod
    def of(cls, worker_id: str, report: InstanceReport, status: str | None) -> Seen:
        """An instance as its worker sees it itself. Raises as ``InstanceStatus.of``."""
        failure = report.failure
        return cls(
            worker_id,
            report.state.value,
            report.restarts,
            failure.trace if failure else "",
            failure.is_user_error if failure else False,
            InstanceStatus.of(json.loads(status)) if status else None,
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Seen:
        """Decode what ``asdict`` made of one, for another worker.

        Raises ``KeyError``, ``TypeError`` for anything else.
        """
        fields: Document = dict(value)
        status = fields["status"]
        if status is not None:
            # ``asdict`` has made dicts of the nested values, too.
            fields["status"] = InstanceStatus.of(status)
        return cls(**fields)


def instance_status(seen: Seen) -> Document:
    """``FunctionInstanceStatusData``."""
    # An instance that does not answer is shown with zeros, and with the reason in ``error``.
    status = seen.status or InstanceStatus()
    total = status.total
    return {
        "running": seen.is_running,
        "error": seen.why_not,
        "numRestarts": seen.restarts,
        "numReceived": total.received,
        "numSuccessfullyProcessed": total.processed,
        "numUserExceptions": total.user_exceptions,
        "latestUserExceptions": [_exception(each) for each in status.latest_user_exceptions],
        "numSystemExceptions": total.system_exceptions,
        "latestSystemExceptions": [_exception(each) for each in status.latest_system_exceptions],
        "averageLatency": total.average_latency_ms,
        "lastInvocationTime": status.last_invocation_ms,
        "workerId": seen.worker_id,
    }


def connector_status(seen: Seen, *, taken: str, given: str, failed: str) -> Document:
    """``SourceInstanceStatusData`` or ``SinkInstanceStatusData``.

    They have the same numbers as that of a function; ``taken``, ``given`` and ``failed`` are the
    names, or parts of names, in which the two differ.
    """
    status = seen.status or InstanceStatus()
    total = status.total
    return {
        "running": seen.is_running,
        "error": seen.why_not,
        "numRestarts": seen.restarts,
        taken: total.received,
        "numSystemExceptions": total.system_exceptions,
        "latestSystemExceptions": [_exception(each) for each in status.latest_system_exceptions],
        # Of the connector's own code.
        f"num{failed}Exceptions": total.user_exceptions,
        f"latest{failed}Exceptions": [_exception(each) for each in status.latest_user_exceptions],
        given: status.written,
        "lastReceivedTime": status.last_invocation_ms,
        "workerId": seen.worker_id,
    }


def component_status(instances: Sequence[Seen], status_of: Callable[[Seen], Document]) -> Document:
    """``FunctionStatus``, ``SourceStatus`` or ``SinkStatus``."""
    return {
        # All that there should be, those included of which nothing is known.
        "numInstances": len(instances),
        "numRunning": sum(each.is_running for each in instances),
        "instances": [
            {"instanceId": number, "status": status_of(each)}
            # Callers give all instances, in the order of their numbers.
            for number, each in enumerate(instances)
        ],
    }


def _exception(report: ExceptionReport) -> Document:
    return {"exceptionString": report.text, "timestampMs": report.timestamp_ms}


def instance_stats(seen: Seen) -> Document:
    """``FunctionInstanceStatsData``."""
    status = seen.status or InstanceStatus()
    return _stats(status.total, status.last_minute, status.last_invocation_ms) | {
        "userMetrics": dict(status.user_metrics)
    }


def function_stats(instances: Sequence[Seen]) -> Document:
    """``FunctionStats``: the sums over all instances, and the numbers of each."""
    # An instance that does not answer counts as nothing: the sums go down for that moment.
    statuses = [each.status or InstanceStatus() for each in instances]
    total = _sum([each.total for each in statuses])
    last_minute = _sum([each.last_minute for each in statuses])
    last_ms = max((each.last_invocation_ms for each in statuses), default=0)
    # Upstream has no user metrics in the sums: their names may mean anything.
    return _stats(total, last_minute, last_ms) | {
        "instances": [
            {"instanceId": number, "metrics": instance_stats(each)}
            for number, each in enumerate(instances)
        ]
    }


def _sum(numbers: Sequence[Numbers]) -> Numbers:
    return Numbers(
        sum(each.received for each in numbers),
        sum(each.processed for each in numbers),
        sum(each.user_exceptions for each in numbers),
        sum(each.system_exceptions for each in numbers),
        # A sum of times, so that the average over all instances is that of their messages.
        sum(each.latency_s for each in numbers),
    )


def _stats(total: Numbers, last_minute: Numbers, last_invocation_ms: int) -> Document:
    return _numbers(total) | {
        "1min": _numbers(last_minute),
        # None where there is no number, as upstream has it; statuses have 0 there.
        "lastInvocation": last_invocation_ms or None,
    }


def _numbers(numbers: Numbers) -> Document:
    return {
        "receivedTotal": numbers.received,
        "processedSuccessfullyTotal": numbers.processed,
        "systemExceptionsTotal": numbers.system_exceptions,
        "userExceptionsTotal": numbers.user_exceptions,
        "avgProcessLatency": numbers.average_latency_ms if numbers.processed else None,
    }
