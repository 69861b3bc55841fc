"""Functions, sources and sinks as functions workers keep them in their topics: generated values.

``functions_pb2`` has the messages that Apache Pulsar's workers read and write too.
"""
