"""Topics as Spark DataFrames: ``spark.read.format("pulsar")``, streaming, and a sink.

Spark finds packages named ``pyspark_*`` by itself: where this one is installed, nothing is to be
registered. It stands on ``geminga``, the client library, and speaks to brokers alone.
"""

from __future__ import annotations

from pyspark_geminga.data_source import DefaultSource
from pyspark_geminga.source.checkpoints import commit_from_checkpoint

__all__ = ["DefaultSource", "commit_from_checkpoint"]
