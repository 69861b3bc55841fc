"""Counting what topics do: rates, durations and how they are spread."""
