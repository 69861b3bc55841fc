"""What becomes of an entry that a broker delivered, decided without IO or waiting.

``entries`` opens an entry: checksum, decryption, decompression, batch. ``chunks`` puts messages
together that came in several entries. ``values`` chooses the schema that reads a payload.
``read_position`` says which messages a reader was asked for, and which it has read already.
"""
