"""What is decided about schemas. Pure: no storage, no clock, and bounded work for any definition.

``definitions`` takes apart what clients send, ``avro`` the definitions that are Avro schemas,
``resolution`` says whether one can read what another wrote, ``compatibility`` which schema may
follow others by a strategy.
"""
