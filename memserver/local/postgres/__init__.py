"""The embedded Postgres: binaries from a package under a launcher of our own."""
