"""The metrics of a functions worker and its instances, named as those of Pulsar's workers.

Instances may run in processes of their own. So the worker requests their counts every few seconds,
and a scrape shows the last ones.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from geminga_functions.cluster.orders import instances_of
from geminga_functions.instance.status import InstanceStatus
from geminga_functions.names import InstanceName
from geminga_functions.worker import Worker
from geminga_protocol.functions.functions_pb2 import FunctionDetails
from geminga_runtime.service import Service
from geminga_server.metrics import Durations, metric

if TYPE_CHECKING:
    from prometheus_client import Metric

log = logging.getLogger(__name__)

PREFIX = "pulsar_function_worker_"
# How often the counts of instances are requested, and how long a request may take.
ASK_PERIOD_S = 5.0
ASK_TIMEOUT_S = 2.0
# Requests at the same time: each of them wakes a process.
ASKED_AT_ONCE = 20
# The quantiles of durations, over periods of this length.
SHARES = (0.5, 0.9, 1.0)
PERIOD_S = 60.0

# The text of an exception in a label is cut to so many characters.
ERROR_CHARACTERS_MAX = 200

Labels = Mapping[str, str]
Family = tuple[str, str]  # name and kind
Samples = dict[Family, list[tuple[str, Labels, float]]]


class WorkerNumbers(Service):
    """The metrics of a worker and of its instances.

    ``start_up_ms`` is the time that the worker took to start.
    """

    def __init__(self, worker: Worker, start_up_ms: float) -> None:
        super().__init__()
        self._worker = worker
        self._start_up_ms = start_up_ms
        # The last status that each instance of this worker has sent. Replaced as a whole by each
        # round of requests; an instance that has left the worker is in it no more.
        self._statuses: dict[InstanceName, InstanceStatus] = {}

    async def _open(self, stack: AsyncExitStack) -> None:  # noqa: ARG002 - nothing stays open
        # Not at a scrape: an instance that does not answer would hold it up for its time-out.
        self.spawn_every(ASK_PERIOD_S, self._ask_all, name="numbers of instances")
        self.spawn_every(PERIOD_S, self._renew, name="periods of durations")

    def _durations(self) -> dict[str, Durations]:
        """The durations that are shown, by the names of their metrics.

        Upstream also has times of rebalances and drains; here these are schedules like all others.
        """
        leadership, instances = self._worker.leadership, self._worker.runtime.instances
        return {
            "schedule_execution_time_total_ms": leadership.schedules,
            "schedule_strategy_execution_time_ms": leadership.strategies,
            "start_instance_process_time_ms": instances.starts,
            "stop_instance_process_time_ms": instances.stops,
        }

    async def _renew(self) -> None:
        for durations in self._durations().values():
            # Quantiles are those of the last whole period and of the present one.
            durations.renew()

    async def _ask_all(self) -> None:
        instances = self._worker.runtime.instances
        room = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(name: InstanceName) -> tuple[InstanceName, str | None]:
            async with room:
                # None for an instance that does not answer: ``gather`` is not ended by it.
                return name, await instances.status(name, ASK_TIMEOUT_S)

        found = await asyncio.gather(*[ask(report.name) for report in instances.reports()])
        # An instance that does not answer is shown with its last status while it is on this worker.
        self._statuses = {
            name: InstanceStatus.of(json.loads(text)) if text else self._statuses[name]
            for name, text in found
            if text or name in self._statuses
        }

    def families(self) -> Iterable[Metric]:
        """All metric families, for one scrape."""
        worker = self._worker
        cluster = {"cluster": worker.config.pulsar_functions_cluster}
        functions = worker.functions.records
        # Read once: it may change while the families are collected, and they should agree.
        leads = worker.leadership.is_leader
        gauges: dict[str, float] = {
            "start_up_time_ms": self._start_up_ms,
            "instance_count": len(worker.runtime.instances.reports()),
            "is_leader": float(leads),
        }
        # Only the leader shows these: a sum over all workers would count them several times.
        if leads:
            gauges["total_function_count"] = len(functions)
            gauges["total_expected_instance_count"] = sum(1 for _ in instances_of(functions))
        for name, value in gauges.items():
            shown = PREFIX + name
            yield metric(shown, "gauge", [(shown, cluster, value)], f"Pulsar's {shown}.")
        for name, durations in self._durations().items():
            shown, summary = PREFIX + name, durations.summary(SHARES, with_present=True)
            quantiles: list[tuple[str, Labels, float]] = [
                (shown, {**cluster, "quantile": str(share)}, value)
                for share, value in summary.quantiles.items()
            ]
            quantiles.append((f"{shown}_count", cluster, summary.count))
            quantiles.append((f"{shown}_sum", cluster, summary.sum_ms))
            yield metric(shown, "summary", quantiles, f"Pulsar's {shown}.")
        for (name, kind), samples in self._instance_samples(cluster).items():
            yield metric(name, kind, samples, f"Pulsar's {name}.")

    def _instance_samples(self, cluster: Labels) -> Samples:
        # By family, not by instance: the text format wants all samples of a family together.
        samples: Samples = defaultdict(list)
        for name, status in self._statuses.items():
            metadata = self._worker.functions.records.get(name.function)
            if metadata is None:
                continue  # the function was deleted, and its instance has not ended yet
            # Those of upstream's workers, by which its dashboards select.
            labels = {
                "tenant": name.function.tenant,
                "namespace": f"{name.function.tenant}/{name.function.namespace}",
                "name": name.function.name,
                "instance_id": str(name.instance),
                "fqfn": str(name.function),
                **cluster,
            }
            kind = metadata.functionDetails.componentType
            for shown, value in numbers_of(kind, status).items():
                # As upstream names them; its counts of a minute end in ``_total``, too.
                family = shown, "counter" if shown.endswith("_total") else "gauge"
                samples[family].append((shown, labels, value))
            for family, shown, more, value in labelled_of(kind, status):
                samples[family].append((shown, {**labels, **more}, value))
        return samples


PREFIXES: dict[int, str] = {
    FunctionDetails.SOURCE: "pulsar_source_",
    FunctionDetails.SINK: "pulsar_sink_",
}
# The name of exceptions of the user's code, by the prefix of the kind.
EXCEPTIONS = {
    "pulsar_function_": "user_exception",
    "pulsar_source_": "source_exception",
    "pulsar_sink_": "sink_exception",
}


def numbers_of(kind: int, status: InstanceStatus) -> dict[str, float]:
    """The metrics of one instance that have no labels of their own, by name. Pure."""
    total, minute = status.total, status.last_minute
    prefix = PREFIXES.get(kind, "pulsar_function_")
    exceptions = f"{EXCEPTIONS[prefix]}s"
    match kind:
        case FunctionDetails.SOURCE:
            counted = {"written": status.written}
        # A sink has written what its ``write`` has returned for; it has no results with receipts.
        case FunctionDetails.SINK:
            counted = {"written": total.processed}
        case _:
            counted = {"processed_successfully": total.processed}
    numbers: dict[str, float] = {
        f"{prefix}received_total": total.received,
        f"{prefix}received_1min_total": minute.received,
        f"{prefix}{exceptions}_total": total.user_exceptions,
        f"{prefix}{exceptions}_1min_total": minute.user_exceptions,
        f"{prefix}system_exceptions_total": total.system_exceptions,
        f"{prefix}system_exceptions_1min_total": minute.system_exceptions,
        # In milliseconds since 1970, as upstream has it, and not in seconds as Prometheus would.
        f"{prefix}last_invocation": status.last_invocation_ms,
    }
    # What a kind counts as its success has a name of its own.
    numbers |= {f"{prefix}{name}_total": value for name, value in counted.items()}
    if prefix == "pulsar_function_":
        numbers[f"{prefix}processed_successfully_1min_total"] = minute.processed
    return numbers


def labelled_of(kind: int, status: InstanceStatus) -> Iterable[tuple[Family, str, Labels, float]]:
    """The summaries and the latest exceptions of one instance. Pure.

    Yields the family, the name of the sample, its labels beside those of the instance, and its
    value. Like those of Pulsar's Python instance, summaries have a sum and a count, and no
    quantiles. The name of a user metric is a label, since it may be any text.
    """
    prefix = PREFIXES.get(kind, "pulsar_function_")
    if prefix == "pulsar_function_":
        for suffix, numbers in (("", status.total), ("_1min", status.last_minute)):
            family = f"{prefix}process_latency_ms{suffix}", "summary"
            yield family, f"{family[0]}_sum", {}, numbers.latency_s * 1000
            yield family, f"{family[0]}_count", {}, numbers.processed
        family = f"{prefix}user_metric", "summary"
        for sum_name, sum_ in status.user_metrics.items():
            name = sum_name.removesuffix("_sum")
            count = status.user_metrics.get(f"{name}_count")
            # The two come as one map: a name of the user's may end in ``_count`` itself.
            if count is not None and name != sum_name:
                yield family, f"{family[0]}_sum", {"metric": name}, sum_
                yield family, f"{family[0]}_count", {"metric": name}, count
    for what, reports in (
        (EXCEPTIONS[prefix], status.latest_user_exceptions),
        ("system_exception", status.latest_system_exceptions),
    ):
        # Keyed by labels: Prometheus refuses two samples with the same ones.
        shown = {
            (each.text.rpartition("\n")[2][:ERROR_CHARACTERS_MAX], str(each.timestamp_ms)): 1.0
            for each in reports
        }
        for (error, timestamp), value in shown.items():
            name = f"{prefix}{what}"
            yield (name, "gauge"), name, {"error": error, "ts": timestamp}, value
