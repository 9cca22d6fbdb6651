"""A run: who plays which examples, and what is kept of them."""
