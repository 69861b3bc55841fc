"""What one subscription has acknowledged, and what of that is stored. Pure.

``Acknowledged`` is the set in memory, built on one ``EntryBitmap`` for each ledger;
``unacknowledged`` walks over what is left; ``CursorState`` is the value that the cursor's records
are written from and read into.
"""
