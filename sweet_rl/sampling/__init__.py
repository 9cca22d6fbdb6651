"""Where a policy's messages are sampled."""
