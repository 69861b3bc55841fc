"""Who consumes from a topic: how subscriptions come and go, under which limits they are served."""
