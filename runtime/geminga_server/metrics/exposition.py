"""Prometheus's text format 0.0.4, written directly and piece by piece.

``prometheus_client`` makes objects and formats the labels of each sample anew, which takes 11 µs a
sample: ninety samples for each of 1,000 topics would hold the event loop for a second. This takes
a third of a microsecond, 30 ms in all, in pieces of less than a millisecond, between which other
tasks run. Metrics with few samples go through ``PartMetrics``.

A field of a snapshot declares the names it is shown under: ``Annotated[int, Gauge("…")]``. Labels
are passed as text, ``cluster="c",topic="t"``, since they are the same for many samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from math import isnan
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, get_type_hints

from geminga_server.rates.durations import Histogram, Summary

# So many samples take about 0.7 ms, a seventh of the longest time that the event loop may be held.
SAMPLES_PER_PIECE = 2000

Labelled = Sequence[tuple[str, object]]
"""Labels, and the snapshot from which the sample is taken."""


@dataclass(frozen=True, slots=True)
class Family:
    """The name and kind under which the field that it annotates is shown."""

    name: str

    kind: ClassVar[str] = "untyped"


class Gauge(Family):
    """A value that goes up and down."""

    kind = "gauge"


class Counter(Family):
    """A value that only grows."""

    kind = "counter"


class Buckets(Family):
    """A ``Histogram``, as Pulsar shows one: a gauge for each bucket, not cumulative, whose names
    end in the bound (``_le_0_5``) or ``_overflow``, then the number of values and their sum."""


class FieldFamily(NamedTuple):
    """One family, and the field that its samples are taken from."""

    family: Family
    field: str

    @property
    def get(self) -> Callable[[Any], Any]:
        """A function that takes the field from a snapshot; booleans become 0 or 1."""
        # Prometheus knows no booleans, and Python would write True.
        get = attrgetter(self.field)
        return (lambda snapshot: int(get(snapshot))) if self.field.startswith("is_") else get


def families_of(snapshot: type, *kinds: type[Family]) -> tuple[FieldFamily, ...]:
    """The families of ``kinds`` with which the fields of a dataclass are annotated, in order."""
    hints = get_type_hints(snapshot, include_extras=True)
    return tuple(
        FieldFamily(mark, each.name)
        for each in fields(snapshot)
        for mark in getattr(hints[each.name], "__metadata__", ())
        if isinstance(mark, kinds)
    )


def escape(value: str) -> str:
    """A label's value, escaped for the format."""
    # The backslash first: those that the other two bring are no part of the value.
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def lines(name: str, kind: str, values: Iterable[tuple[str, object]]) -> Iterator[str]:
    """A family of values by their labels."""
    yield f"# TYPE {name} {kind}\n"
    # In pieces: between two of them the caller lets other tasks run.
    remaining = iter(values)
    while piece := list(islice(remaining, SAMPLES_PER_PIECE)):
        yield "".join([f"{name}{{{labels}}} {value}\n" for labels, value in piece])


def samples(families: Iterable[FieldFamily], labelled: Labelled) -> Iterator[str]:
    """Each family with a sample for each of the snapshots."""
    # Family by family, not snapshot by snapshot: the format wants all samples of a family together,
    # below its one TYPE line.
    for each in families:
        name, get = each.family.name, each.get
        if isinstance(each.family, Buckets):
            yield from _buckets(name, [(labels, get(one)) for labels, one in labelled])
            continue
        yield f"# TYPE {name} {each.family.kind}\n"
        # As ``lines``, without a pair for each sample: most samples come through here.
        for start in range(0, len(labelled), SAMPLES_PER_PIECE):
            piece = labelled[start : start + SAMPLES_PER_PIECE]
            yield "".join([f"{name}{{{labels}}} {get(one)}\n" for labels, one in piece])


def _buckets(name: str, labelled: Sequence[tuple[str, Histogram]]) -> Iterator[str]:
    # All histograms of a family have the same bounds.
    bounds = labelled[0][1].bounds if labelled else ()
    # A family for each bound, as Pulsar names them; not one family with a label ``le``.
    for index, bound in enumerate((*bounds, None)):
        suffix = "overflow" if bound is None else f"le_{bound:g}".replace(".", "_")
        values = ((labels, each.counts[index]) for labels, each in labelled)
        yield from lines(f"{name}_{suffix}", "gauge", values)
    for suffix in ("count", "sum"):
        values = ((labels, getattr(each, suffix)) for labels, each in labelled)
        yield from lines(f"{name}_{suffix}", "gauge", values)


def gauges(values: Mapping[str, object], labels: str) -> str:
    """A family of one sample for each of ``values``."""
    return "".join(
        [f"# TYPE {name} gauge\n{name}{{{labels}}} {value}\n" for name, value in values.items()]
    )


def summary_text(name: str, summary: Summary, labels: str) -> str:
    """Quantiles, then how many there were and their sum."""
    # The quantiles are of a period, count and sum of the whole life, as the format wants them.
    text = [f"# TYPE {name} summary\n"]
    for share, bound_ms in summary.quantiles.items():
        # Python would write ``nan``, which Prometheus does not take.
        shown = "NaN" if isnan(bound_ms) else bound_ms
        text.append(f'{name}{{{labels},quantile="{share}"}} {shown}\n')
    text.append(f"{name}_count{{{labels}}} {summary.count}\n")
    text.append(f"{name}_sum{{{labels}}} {summary.sum_ms}\n")
    return "".join(text)
