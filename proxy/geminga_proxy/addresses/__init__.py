"""Which addresses brokers have, and to which of them a client may be connected. Pure.

``broker_view`` is what the proxy knows of the brokers, ``targets`` the rules of what a client may
name.
"""
