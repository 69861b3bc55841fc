"""Key_Shared subscriptions: which consumer has which keys, and in what order it gets them."""
