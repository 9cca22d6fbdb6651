"""Runs code that a model or a data set wrote, where it can harm nothing."""
