"""What moves a subscription's cursor: acknowledgements, seeks, skipped and expired messages.

Each changes what the cursor holds as acknowledged, lets the cursor write that, and then tells the
dispatcher, which stops sending what was passed.
"""
