"""HTTP: routes, schemas, errors. Leaves to `agent` what a turn is."""
