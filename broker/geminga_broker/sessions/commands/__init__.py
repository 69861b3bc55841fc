"""The handlers of the commands that clients send: one group per subject.

A group is a class with a table of handlers (``command_group``). ``sessions.connection`` makes the
groups of a connection and passes each command to its handler. Groups know their session, but not
each other.
"""
