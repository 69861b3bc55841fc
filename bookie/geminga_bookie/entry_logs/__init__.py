"""The entry logs: the files that hold entries for good, in any of the ledger directories.

``entry_log`` appends blocks to the newest file and reads blocks of all of them, those that
``open_files`` keeps open. ``log_scan`` reads a file from end to end without the index;
``log_lists`` remembers which files there must be. ``formats.entry_log_v1`` draws the blocks.
"""
