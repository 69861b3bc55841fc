"""Proves that what a worker sees of an instance reaches other workers whole, and what people are
shown of it."""

from __future__ import annotations

from dataclasses import asdict

from geminga_functions.admin.kinds import SINKS, SOURCES
from geminga_functions.admin.reports import (
    Seen,
    component_status,
    function_stats,
    instance_status,
)
from geminga_functions.instance.status import ExceptionReport, InstanceStatus, Numbers

STATUS = InstanceStatus(
    Numbers(5, 4, 1, 2, 0.008),
    Numbers(2, 2, 0, 0, 0.002),
    3,
    1_700_000_000_000,
    (ExceptionReport("user", 1),),
    (ExceptionReport("system", 2),),
    {"m_sum": 1.5, "m_count": 1.0},
)
RUNS = Seen("w-0", "running", 2, "an old trace", is_user_error=True, status=STATUS)
FAILS = Seen("w-1", "failed", 7, "a trace", is_user_error=True)
UNKNOWN = Seen(error="the leader has not scheduled it yet")


def test_a_report_reaches_other_workers_whole() -> None:
    for seen in (RUNS, FAILS, UNKNOWN):
        assert Seen.from_json(asdict(seen)) == seen


def test_a_status_says_what_runs_and_why_the_rest_does_not() -> None:
    status = component_status([RUNS, FAILS, UNKNOWN], instance_status)
    assert (status["numInstances"], status["numRunning"]) == (3, 1)
    assert status["instances"][0]["status"] == {
        "running": True,
        "error": "",
        "numRestarts": 2,
        "numReceived": 5,
        "numSuccessfullyProcessed": 4,
        "numUserExceptions": 1,
        "latestUserExceptions": [{"exceptionString": "user", "timestampMs": 1}],
        "numSystemExceptions": 2,
        "latestSystemExceptions": [{"exceptionString": "system", "timestampMs": 2}],
        "averageLatency": 2.0,
        "lastInvocationTime": 1_700_000_000_000,
        "workerId": "w-0",
    }
    errors = [each["status"]["error"] for each in status["instances"]]
    assert errors == ["", "a trace", "the leader has not scheduled it yet"]


def test_stats_of_a_function_are_the_sums_of_its_instances() -> None:
    stats = function_stats([RUNS, RUNS, FAILS])
    assert (stats["receivedTotal"], stats["processedSuccessfullyTotal"]) == (10, 8)
    assert (stats["userExceptionsTotal"], stats["systemExceptionsTotal"]) == (2, 4)
    assert stats["avgProcessLatency"] == 2.0
    assert stats["1min"]["receivedTotal"] == 4
    assert stats["lastInvocation"] == 1_700_000_000_000
    assert stats["instances"][0]["metrics"]["userMetrics"] == {"m_sum": 1.5, "m_count": 1.0}
    assert stats["instances"][2]["metrics"]["avgProcessLatency"] is None


def test_sources_and_sinks_have_names_of_their_own_for_numbers() -> None:
    source, sink = SOURCES.status_of(RUNS), SINKS.status_of(RUNS)
    assert (source["numReceivedFromSource"], source["numWritten"]) == (5, 3)
    assert (sink["numReadFromPulsar"], sink["numWrittenToSink"]) == (5, 3)
    assert source["numSourceExceptions"] == sink["numSinkExceptions"] == 1
    assert source["latestSourceExceptions"] == [{"exceptionString": "user", "timestampMs": 1}]
