"""What becomes of a message before it is sent, decided without IO or waiting.

``attributes`` encodes what is said about a message besides its payload, ``batches`` collects the
messages that leave as one entry and numbers them, ``routing`` chooses the partition.
"""
