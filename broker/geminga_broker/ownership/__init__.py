"""Who serves which topics: bundles, the ephemeral nodes that own them, the brokers, the leader.

``bundles`` cuts hash rings and ``placement`` chooses brokers, both purely; ``owners`` keeps what
ZooKeeper says; ``owned_bundles`` acquires bundles, hands them on and gives them up; ``ownership``
puts these together and answers lookups; ``brokers`` registers this broker and takes part in the
election of the leader. Which topics exist is the business of ``geminga_cluster``.
"""
