"""Moving agents in and out: the agent file, Letta's agent file, export and import."""
