"""A terminal client: a conversation with an agent, and a look into its memory."""
