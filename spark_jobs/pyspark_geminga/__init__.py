"""Topics as Spark DataFrames: ``spark.read.format("pulsar")``, streaming, and a sink.

Spark finds packages named ``pyspark_*``: where this one is installed, it needs no registration.
``data_source`` is what Spark loads. ``source`` reads and ``sink`` writes, both with the options and
the client of ``access`` and ``_pool``; ``rest`` and ``log_layout`` tell what topics store. ``jobs``
are programs on top of these, ``demo`` shows all of it.

A query reads each message exactly once, and fails if messages were deleted unread. The package uses
``geminga``, the client library, and talks to brokers alone: over the binary protocol, and over REST
for what that does not tell.
"""

from __future__ import annotations

from pyspark_geminga.data_source import DefaultSource
from pyspark_geminga.source.checkpoints import commit_from_checkpoint

__all__ = ["DefaultSource", "commit_from_checkpoint"]
