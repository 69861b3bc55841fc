"""What the leader decides about bundles from the load reports of all brokers. Pure.

``ClusterLoad`` is what each broker has to do; ``placement`` chooses a broker for a bundle,
``shedding`` which bundles are moved, ``splitting`` which are split; ``LoadHistory`` averages loads.
"""
