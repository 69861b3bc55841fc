"""The encodings that records share: JSON, protobuf's binary and text forms, compression, bit sets.

Each module of a record combines one of them with its own fields. JSON records keep members that a
newer writer added (``JsonRecord.other``), so that reading and writing a record never drops them.
"""
