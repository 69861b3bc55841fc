"""``geminga admin``: asks and orders brokers by REST, with the words and flags of ``pulsar-admin``.

One module for each group of commands; each is a tuple of ``Operation`` values.
"""
