"""Fakes that are shipped: the scripted model and its endpoint, the hashing embedder."""
