"""Requests to addresses that users name: webhooks and MCP servers."""
