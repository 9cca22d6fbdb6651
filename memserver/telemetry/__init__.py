"""What an operator sees of a server: its log, metrics and traces."""
