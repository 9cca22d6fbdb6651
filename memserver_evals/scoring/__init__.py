"""Scores of answers: pure functions of texts, each after its source."""
