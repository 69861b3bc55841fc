"""The encodings that records share: JSON, protobuf's binary and text forms, compression, bit sets.

A record module combines one of them with its own fields. The JSON and protobuf encodings keep the
fields that a newer writer added, so that reading and writing a record never drops them.
"""
