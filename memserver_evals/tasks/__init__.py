"""The evaluations' tasks, one file for each, and their catalogue."""
