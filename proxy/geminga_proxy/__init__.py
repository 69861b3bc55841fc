"""The proxy: the gateway for clients that cannot reach the brokers of a cluster.

``connection`` reads a client's first frames. A client that names no broker asks for topics, and
``lookups`` asks a broker for it; a client that names one (``proxy_to_broker_url``) is joined to it,
if ``targets`` allows that, and from then on ``splice`` carries bytes both ways without looking at
them. ``web`` forwards REST. ``brokers`` knows the brokers there are, from ZooKeeper or from a list
of URLs. ``proxy.py`` puts them together. A proxy keeps no state: clients may use any of several.
"""
