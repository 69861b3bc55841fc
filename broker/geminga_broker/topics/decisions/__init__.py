"""Decisions about producers and consumers of a topic: facts in, verdicts out. Pure.

``consumer_admission`` decides which consumers may subscribe, ``publish_rate`` how long producers
pause; ``sequence_ids`` and ``source_positions`` decide which messages are repeats.
"""
