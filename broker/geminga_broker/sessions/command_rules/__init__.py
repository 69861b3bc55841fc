"""Which commands a connection takes in which state, and how the others are refused. Pure."""
