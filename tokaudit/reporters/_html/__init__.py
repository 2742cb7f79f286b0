"""The parts of the HTML page: its elements, its sections, the packed data, and the files it is made of."""
