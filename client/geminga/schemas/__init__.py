"""Schemas: how the values that users send and receive become the bytes of messages, and back."""
