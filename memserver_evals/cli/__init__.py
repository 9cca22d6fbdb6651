"""The commands of `memserver eval`."""
