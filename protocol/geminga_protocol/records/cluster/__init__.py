"""Records about a Pulsar cluster: its brokers, tenants, namespaces, and who owns which bundle."""
