"""Backend collaboration: an agent finds out, by asking, which Python function is wanted, and writes it."""
