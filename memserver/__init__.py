"""memserver: a MemGPT-style agent server over Postgres, pgvector and any OpenAI-compatible model."""

__version__ = "0.1.0"
