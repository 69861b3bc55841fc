"""The groups of ``geminga admin``, a module each, which is loaded by the group's name.

Each has ``OPERATIONS``. ``messages`` is no group: like ``subscriptions``, it has commands of
``topics``.
"""
