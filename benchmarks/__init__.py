"""Benchmarks against the standing budgets. Each is a module: `python -m benchmarks.turn`."""
