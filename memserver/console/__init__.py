"""The console: pages for people, in a browser. It reads and writes through the public API only; the server runs without it."""
