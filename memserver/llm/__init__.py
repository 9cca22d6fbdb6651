"""Models behind one protocol, and what it takes to talk to them."""
