"""Tables, queries, the pool and tenant scope; what the rows mean is left to `memory` and `agent`."""
