"""What the bookie knows of ledgers and entries, wherever they are: in memory, or in an entry log.

``storage`` decides who may add and finds entries. ``ledgers`` has master keys and fences,
``write_cache`` the entries that no entry log has yet, ``read_cache`` those that were read lately,
``last_confirmed`` up to where ledgers are confirmed. ``checkpoint`` carries the write cache to the
entry logs and the index. ``rebuild`` and ``lost_logs`` serve a start after something was lost.
"""
