"""Embedders behind one protocol."""
