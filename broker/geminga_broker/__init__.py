"""The broker: serves topics to Pulsar clients, keeps nothing on its own disk.

``sessions`` speaks the binary protocol with one client each; ``topics`` knows producers and
subscriptions, and ``subscriptions`` who gets which message; ``managed_ledger`` turns a chain of
ledgers into one durable log with cursors; ``ownership`` says, through ZooKeeper, which broker has
what; ``admin`` is the REST side. ``broker.py`` puts them together. What exists in the cluster is
read with ``geminga_cluster``.
"""
