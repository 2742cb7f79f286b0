"""The values of the tables (torch): read once, in chunks, by as many threads as there are processors."""
