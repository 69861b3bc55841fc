"""A session with ZooKeeper, as ``geminga_runtime.coordination`` wants one. Only this folder
imports kazoo.

``session`` is what servers open. It stands on ``requests`` (held while there is no connection, and
watches), ``kazoo_words`` (kazoo's values and errors in ours) and ``kazoo_bridge`` (kazoo's thread).
``startup_wait`` tells operators what a starting process waits for.
"""
