"""The stages of a run: their graph, their work, and who runs them."""
