"""The folder of a ``pulsar`` module for functions that are written for the official client.

An instance puts the folder on its path; no wheel installs the module.
"""
