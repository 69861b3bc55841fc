"""Reading a log.

``LogReader`` finds entries in memory or on bookies, ``LogScan`` reads a log once from end to end,
and ``payloads`` looks into what was read.
"""
