"""Frontend collaboration: an agent writes a web page and fixes it by what a human says of its picture."""
