"""What the bookie writes to its disks, one module for each layout and version. Pure.

``journal_v1`` and ``entry_log_v1`` hold entries, ``index_v2`` says where they are, ``log_list_v1``
which files there must be. ``salvage_v1`` reads what is left of a damaged block.
"""
