"""Repairing ledgers: check one, copy what it lacks, write down which bookies have it now.

``worker`` takes marked ledgers one by one, ``repair`` repairs one. Below it ``checker`` finds what
is wrong, ``copier`` makes the copies, ``take_over`` closes a ledger whose writer is gone.
``copies`` and ``entry_lists`` talk to bookies.
"""
