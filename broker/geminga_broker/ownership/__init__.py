"""Which broker serves which topics: bundles, their ephemeral nodes, the brokers, the leader.

``addresses``       where brokers are reached, and advertised listeners; pure
``assignment``      hash rings cut into bundles, and which broker shall own a bundle; pure
``rings``           the ring of each namespace, read once and kept until it changes
``owners``          what ZooKeeper says of the owners of bundles
``OwnedBundles``    this broker's bundles: acquired, confirmed, handed on, lost
``Ownership``       puts these together and answers lookups
``Brokers``         registers this broker with its load, and takes part in the leader's election
``clusters``        which cluster serves a namespace

At most one broker serves a bundle as long as ZooKeeper keeps its session; a broker that lost the
session gives everything up. In between, the fences of the logs keep two brokers apart, not this
room. Which topics exist is the business of ``geminga_cluster``.
"""
