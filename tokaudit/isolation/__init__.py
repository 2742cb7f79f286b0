"""Processes with limits, for libraries and formats that strangers' files can turn against their reader.

Imports nothing: a child imports this package, too.
"""
