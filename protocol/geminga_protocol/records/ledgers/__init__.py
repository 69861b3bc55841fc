"""Records about ledgers: their metadata, how ZooKeeper lays them out, which miss a replica."""
