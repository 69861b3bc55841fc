"""The bookie's directories and the disks behind them.

``directories`` chooses where a new file goes, ``identity`` makes sure that all directories are this
bookie's, ``space_watch`` measures how full the ledger disks are.
"""
