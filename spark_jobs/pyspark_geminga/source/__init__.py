"""Reads topics as rows: what to read, in which parts, and how far a stream is.

In the order in which a query meets them: ``options`` (what the user asks for), ``row_schema``
(which columns there are), ``broker_view`` (what topics hold now), ``batch_reader`` and
``stream_reader`` (what Spark calls), ``stream_planner`` with ``admission`` and ``splits`` (how far
a batch reads, in which parts), ``offsets`` (what Spark's checkpoint keeps), and ``reading`` (what a
task does).

What decides (filters, offsets, admission, splits, the planner) is pure. Reading is exactly-once: a
batch that is repeated reads the same messages, and messages that were deleted before they were read
fail the query unless ``failOnDataLoss=false``.
"""
