"""What a functions worker tells Prometheus, under the names of Pulsar's workers and instances.

Instances are asked for their numbers every few seconds, as they run in processes of their own; a
scrape shows what they said last.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from geminga_functions.cluster.orders import instances_of
from geminga_functions.instance.status import InstanceStatus
from geminga_functions.names import InstanceName
from geminga_functions.worker import Worker
from geminga_protocol.functions.functions_pb2 import FunctionDetails
from geminga_runtime.service import Service
from geminga_server.metrics import metric

if TYPE_CHECKING:
    from prometheus_client import Metric

log = logging.getLogger(__name__)

PREFIX = "pulsar_function_worker_"
ASK_PERIOD_S = 5.0
ASK_TIMEOUT_S = 2.0
# Instances that are asked at the same moment: each answer wakes a process.
ASKED_AT_ONCE = 20

Labels = Mapping[str, str]
Samples = dict[str, list[tuple[str, Labels, float]]]


class WorkerNumbers(Service):
    """The numbers of a worker and of its instances, as long as it is open.

    ``start_up_ms`` is how long the worker took to start.
    """

    def __init__(self, worker: Worker, start_up_ms: float) -> None:
        super().__init__()
        self._worker = worker
        self._start_up_ms = start_up_ms
        self._statuses: dict[InstanceName, InstanceStatus] = {}

    async def _open_parts(self) -> None:
        await super()._open_parts()
        self.spawn_every(ASK_PERIOD_S, self._ask_all, name="numbers of instances")

    async def _ask_all(self) -> None:
        instances = self._worker.runtime.instances
        room = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(name: InstanceName) -> tuple[InstanceName, str | None]:
            async with room:
                return name, await instances.status(name, ASK_TIMEOUT_S)

        found = await asyncio.gather(*[ask(report.name) for report in instances.reports()])
        # One that does not answer now is shown as it was, as long as it is here.
        self._statuses = {
            name: InstanceStatus.from_json(text) if text else self._statuses[name]
            for name, text in found
            if text or name in self._statuses
        }

    def families(self) -> Iterable[Metric]:
        """All families, for one scrape."""
        worker = self._worker
        cluster = {"cluster": worker.config.pulsar_functions_cluster}
        functions = worker.functions.records
        leads = worker.leadership.is_leader
        gauges: dict[str, float] = {
            "start_up_time_ms": self._start_up_ms,
            "instance_count": len(worker.runtime.instances.reports()),
            "is_leader": float(leads),
        }
        if leads:
            gauges["total_function_count"] = len(functions)
            gauges["total_expected_instance_count"] = sum(1 for _ in instances_of(functions))
        for name, value in gauges.items():
            shown = PREFIX + name
            yield metric(shown, "gauge", [(shown, cluster, value)], f"Pulsar's {shown}.")
        gauge_samples, counter_samples = self._instance_samples(cluster)
        for kind, samples in (("gauge", gauge_samples), ("counter", counter_samples)):
            for name, each in samples.items():
                yield metric(name, kind, each, f"Pulsar's {name}.")

    def _instance_samples(self, cluster: Labels) -> tuple[Samples, Samples]:
        gauges: Samples = defaultdict(list)
        counters: Samples = defaultdict(list)
        for name, status in self._statuses.items():
            metadata = self._worker.functions.records.get(name.function)
            if metadata is None:
                continue
            labels = {
                "tenant": name.function.tenant,
                "namespace": f"{name.function.tenant}/{name.function.namespace}",
                "name": name.function.name,
                "instance_id": str(name.instance),
                "fqfn": str(name.function),
                **cluster,
            }
            numbers = numbers_of(metadata.functionDetails.componentType, status)
            for suffix, value in numbers.items():
                samples = counters if suffix.endswith("_total") else gauges
                samples[suffix].append((suffix, labels, value))
        return gauges, counters


def numbers_of(kind: int, status: InstanceStatus) -> dict[str, float]:
    """The numbers of one instance by their names. Pure."""
    total, minute = status.total, status.last_minute
    match kind:
        case FunctionDetails.SOURCE:
            prefix, exceptions = "pulsar_source_", "source_exceptions"
            counted = {"written": status.written}
        case FunctionDetails.SINK:
            prefix, exceptions = "pulsar_sink_", "sink_exceptions"
            counted = {"written": total.processed}
        case _:
            prefix, exceptions = "pulsar_function_", "user_exceptions"
            counted = {"processed_successfully": total.processed}
    numbers: dict[str, float] = {
        f"{prefix}received_total": total.received,
        f"{prefix}received_1min_total": minute.received,
        f"{prefix}{exceptions}_total": total.user_exceptions,
        f"{prefix}{exceptions}_1min_total": minute.user_exceptions,
        f"{prefix}system_exceptions_total": total.system_exceptions,
        f"{prefix}system_exceptions_1min_total": minute.system_exceptions,
        f"{prefix}last_invocation": status.last_invocation_ms,
    }
    numbers |= {f"{prefix}{name}_total": value for name, value in counted.items()}
    if prefix == "pulsar_function_":
        numbers[f"{prefix}processed_successfully_1min_total"] = minute.processed
        numbers[f"{prefix}process_latency_ms_1min"] = minute.average_latency_ms
        for name, value in status.user_metrics.items():
            numbers[f"{prefix}user_metric_{name}"] = value
    return numbers
