"""The protocols and records as values: no IO, no clock, no chance.

``pulsar`` is what clients speak, ``bookkeeper`` what bookies speak, ``records`` what stands in
ZooKeeper.
"""
