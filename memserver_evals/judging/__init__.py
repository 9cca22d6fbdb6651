"""Judges: whether an answer is right, by a string or by a model, and how far they agree with people."""
