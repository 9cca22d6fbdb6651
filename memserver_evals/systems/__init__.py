"""What is compared: memserver, and the same model without it."""
