"""Records of a Pulsar cluster: its brokers, clusters, tenants, namespaces, and who owns bundles."""
