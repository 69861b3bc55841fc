"""Functions, sources and sinks as functions workers store them in their topics.

``functions_pb2`` is generated from the messages that Apache Pulsar's workers read and write.
"""
