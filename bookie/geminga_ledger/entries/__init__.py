"""Entries as values: how they are checked, which to request, and which to keep. Pure.

``digests`` checks an entry and takes its payload out, ``read_plan`` says how many entries fill a
read of so many bytes, ``read_ahead_cache`` keeps entries that were read and not given out yet.
"""
