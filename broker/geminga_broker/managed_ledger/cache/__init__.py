"""Entries in the broker's memory, under two bounds that all topics share. Pure.

``EntryCache`` keeps what was published last (``LogCache`` is one log's part of it); ``ReadAhead``
keeps what a dispatcher read from bookies and has not sent yet.
"""
