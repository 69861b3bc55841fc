"""What makes adds durable: one sync for each group of them, and their return after a crash."""
