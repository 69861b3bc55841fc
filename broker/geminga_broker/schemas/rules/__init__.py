"""Decisions about schemas. Pure: no storage, no clock, and bounded work for any definition.

``definitions`` decodes and checks what clients send, ``avro`` parses the definitions that are Avro
schemas, ``resolution`` decides whether one Avro schema can read what another wrote, and
``compatibility`` which schema may follow others by a strategy.
"""
