"""Reads topics as rows: what to read, in which parts, and how far a stream is.

What decides (offsets, limits, splits, the planner of streams) is pure; ``broker_view`` asks
brokers, ``reading`` reads a part in a task of Spark's.
"""
