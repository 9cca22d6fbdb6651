"""Limits of a sandbox for tests."""

from memserver_evals.colbench.sandbox.fork_server import SandboxLimits

PATIENT = SandboxLimits(cpu_seconds=2, wall_seconds=60, job_seconds=100, megabytes=256)
"""A busy machine takes long for what costs little."""
