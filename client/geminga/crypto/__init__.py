"""End-to-end encryption: brokers store bodies of messages that they cannot read (PIP-4).

``encryption`` seals what a producer sends, ``decryption`` opens what a consumer receives. Both
stand on ``key_wrapping``, which fits a data key to the RSA or elliptic-curve key of a reader.
``context`` is what a message tells its consumer about its encryption.
"""
