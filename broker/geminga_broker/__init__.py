"""The broker: serves topics to Pulsar clients, keeps nothing on its own disk.

``sessions`` speaks the binary protocol with one client each; ``topics`` knows producers,
subscriptions and who gets which message; ``log`` turns a chain of ledgers into one durable log with
cursors; ``ownership`` and ``metadata`` say, through ZooKeeper, what exists and whose it is;
``admin`` is the REST side. ``broker.py`` puts them together.
"""
