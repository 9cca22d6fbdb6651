"""What a request passes on its way to a route."""
