"""The `geminga` command: starts the parts of a cluster, one or all, and watches over them.

``main`` finds the command; ``commands`` has one module for each, with its options;
``embedded_zookeeper`` brings and runs a real ZooKeeper; ``supervisor`` keeps parts alive. Each
imports what it needs when it is needed: the supervisor stays small, and ``--help`` is quick.
"""
