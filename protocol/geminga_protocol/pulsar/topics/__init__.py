"""Names of topics, and the patterns by which clients subscribe to several of them."""
