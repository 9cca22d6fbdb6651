"""ColBench: two environments in which an agent works with a simulated human, and what they score with."""
