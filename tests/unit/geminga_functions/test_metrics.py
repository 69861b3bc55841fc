"""Proves under which names the numbers of an instance are shown, as Pulsar's dashboards ask."""

from __future__ import annotations

from geminga_functions.instance.status import ExceptionReport, InstanceStatus, Numbers
from geminga_functions.metrics import labelled_of, numbers_of
from geminga_protocol.functions.functions_pb2 import FunctionDetails

STATUS = InstanceStatus(
    total=Numbers(received=10, processed=7, user_exceptions=2, system_exceptions=1, latency_s=0.7),
    last_minute=Numbers(received=5, processed=4, latency_s=0.2),
    written=6,
    last_invocation_ms=1234,
    latest_user_exceptions=(ExceptionReport("Traceback\nValueError: x", 5),) * 2,
    user_metrics={"a size_sum": 12.0, "a size_count": 3.0},
)


def test_a_function_is_shown_with_what_it_processed_and_its_own_metrics() -> None:
    assert numbers_of(FunctionDetails.FUNCTION, STATUS) == {
        "pulsar_function_received_total": 10,
        "pulsar_function_received_1min_total": 5,
        "pulsar_function_processed_successfully_total": 7,
        "pulsar_function_processed_successfully_1min_total": 4,
        "pulsar_function_user_exceptions_total": 2,
        "pulsar_function_user_exceptions_1min_total": 0,
        "pulsar_function_system_exceptions_total": 1,
        "pulsar_function_system_exceptions_1min_total": 0,
        "pulsar_function_last_invocation": 1234,
    }
    found = {
        (shown, *labels.items()): value
        for _, shown, labels, value in labelled_of(FunctionDetails.FUNCTION, STATUS)
    }
    metric = ("metric", "a size")
    assert found == {
        ("pulsar_function_process_latency_ms_sum",): 700.0,
        ("pulsar_function_process_latency_ms_count",): 7,
        ("pulsar_function_process_latency_ms_1min_sum",): 200.0,
        ("pulsar_function_process_latency_ms_1min_count",): 4,
        ("pulsar_function_user_metric_sum", metric): 12.0,
        ("pulsar_function_user_metric_count", metric): 3.0,
        ("pulsar_function_user_exception", ("error", "ValueError: x"), ("ts", "5")): 1.0,
    }


def test_sources_and_sinks_are_shown_with_what_they_wrote() -> None:
    source = numbers_of(FunctionDetails.SOURCE, STATUS)
    assert source["pulsar_source_written_total"] == 6
    assert source["pulsar_source_source_exceptions_total"] == 2
    sink = numbers_of(FunctionDetails.SINK, STATUS)
    assert sink["pulsar_sink_written_total"] == 7
    assert sink["pulsar_sink_received_total"] == 10
