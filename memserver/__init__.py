"""memserver: a MemGPT-style agent server over Postgres, pgvector and any OpenAI-compatible model."""

from importlib.metadata import version

__version__ = version("memserver")
