"""HTTP to an OpenAI-compatible endpoint: connections, errors, and when to stop asking."""
