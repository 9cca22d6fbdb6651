"""SWEET-RL (arXiv 2503.15478): training a small policy to act by its memory tools."""
