"""What makes `make run` need nothing: Postgres and the local model's engine."""
