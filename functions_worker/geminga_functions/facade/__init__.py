"""The folder of the ``pulsar`` module that functions for the official client import. An instance
puts the folder on its path; no wheel installs the module.
"""
