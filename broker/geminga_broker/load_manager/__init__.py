"""Which broker shall serve which bundles: placed when no broker owns them, moved, split.

``balancing``       decides from the brokers' load reports; pure
``history_records`` keeps averages of the loads in ZooKeeper for the next leader
``LoadManager``     acts on the broker that leads, through a ``BundleMover`` that asks the owners of
                    bundles over REST
``process_usage``   how busy this broker's process is

Only the leader acts, and it asks before each act whether it still leads. What becomes of the
ownership of a bundle is the business of ``ownership``.
"""
