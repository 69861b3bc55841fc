"""Who serves which topics: bundles, the ephemeral nodes that own them, the brokers, the leader.

``bundles`` cuts hash rings, purely; ``ownership`` acquires, answers lookups from and gives up
bundles; ``brokers`` registers this broker and elects the leader. Which topics exist is the
business of ``metadata``.
"""
