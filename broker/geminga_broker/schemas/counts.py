"""What the metrics show of the registry by namespace: durations, failures, comparisons."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from geminga_broker.schemas.errors import IncompatibleSchema
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError
from geminga_server.metrics import Durations

# Namespaces that are counted: each takes 6 KB. If there are more, those that were counted first are
# forgotten. 6 MB at most.
NAMESPACES_MAX = 1_000


class Operation(Enum):
    """What is done to schemas, as metrics call it."""

    GET = "get"
    PUT = "put"
    DELETE = "del"


@dataclass(slots=True)
class NamespaceCounts:
    """The operations in one namespace since the broker started."""

    durations: dict[Operation, Durations] = field(
        default_factory=lambda: {each: Durations() for each in Operation}
    )
    # Operations that storage has failed; refused schemas do not count.
    failed: dict[Operation, int] = field(default_factory=lambda: dict.fromkeys(Operation, 0))
    # Schemas that could follow those before them, and schemas that could not.
    compatible: int = 0
    incompatible: int = 0


@dataclass(slots=True, eq=False)
class SchemaCounts:
    """The counts of all namespaces."""

    clock: Clock
    # In the order in which namespaces were first used.
    by_namespace: dict[str, NamespaceCounts] = field(default_factory=dict)

    def of(self, namespace: str) -> NamespaceCounts:
        """The counts of a namespace, to be added to."""
        counts = self.by_namespace.get(namespace)
        if counts is None:
            # A counter that begins anew at 0 is what scrapers know from restarts.
            if len(self.by_namespace) >= NAMESPACES_MAX:
                del self.by_namespace[next(iter(self.by_namespace))]
            counts = self.by_namespace[namespace] = NamespaceCounts()
        return counts

    @contextmanager
    def timed(self, operation: Operation, namespace: str) -> Generator[None]:
        """Count one operation; an error that can be retried is a failure of storage."""
        # Looked up before the wait: if the namespace is forgotten meanwhile, this operation is
        # counted in an object that is not shown any more.
        counts, began_s = self.of(namespace), self.clock.monotonic()
        try:
            yield
        except GemingaError as error:
            counts.failed[operation] += error.retry
            raise
        finally:
            counts.durations[operation].add((self.clock.monotonic() - began_s) * 1000)

    @contextmanager
    def compared(self, namespace: str) -> Generator[None]:
        """Count whether the schema that is compared inside may follow."""
        counts = self.of(namespace)
        try:
            yield
        # Other errors, such as a definition that is too large to compare, are neither.
        except IncompatibleSchema:
            counts.incompatible += 1
            raise
        counts.compatible += 1

    def renew(self) -> None:
        """A stats period ended: begin the next one."""
        for counts in self.by_namespace.values():
            for durations in counts.durations.values():
                durations.renew()
