"""The supervised start of a policy: synthetic users, played through the real server, and LoRA on the agent's turns."""
