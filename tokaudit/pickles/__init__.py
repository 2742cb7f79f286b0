"""The shapes in files that are pickles, read in an isolated process that knows no class but its own."""
