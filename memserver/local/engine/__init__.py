"""The local engine: vLLM on the CPU in an environment of its own, and the model it serves."""
