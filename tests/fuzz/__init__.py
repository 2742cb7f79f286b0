"""Generators of hostile and odd inputs, and what must hold for every one of them.

An input is a folder: a mapping of file names to bytes. ``values`` makes what stands in files and damages it,
one module for each kind of file makes that kind, ``targets`` makes whole inputs. ``properties`` says what
must hold for all of them, ``texts`` what must hold for whatever is printed, ``references`` what the libraries
of the formats read from the same files. ``found`` keeps every input that ever failed. tests/test_fuzz.py
runs a little of it at a time, tools/fuzz.py as long as it is asked to.
"""
