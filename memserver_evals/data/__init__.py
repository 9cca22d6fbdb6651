"""The data of the evaluations: one module for each format, all through one reader."""
