"""Frontend collaboration: an agent writes a web page and mends it by what a human says of its picture."""
