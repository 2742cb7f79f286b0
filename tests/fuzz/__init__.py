"""Generators of hostile and odd inputs, and what must hold for every one of them.

An input is a folder: a mapping of file names to bytes. ``values`` and ``documents`` make what stands in the
files, ``targets`` make whole inputs, ``properties`` says what must hold, ``found`` keeps every input that
ever failed. tests/test_fuzz.py runs a little of it at a time, tools/fuzz.py as long as it is asked to.
"""
