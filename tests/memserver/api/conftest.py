"""What the walks over all routes need beside the server."""

from collections.abc import Iterator

import pytest

from tests.support.mcp_demo import over_http


@pytest.fixture(scope="module")
def mcp_url() -> Iterator[str]:
    """An MCP server."""
    with over_http() as port:
        yield f"http://127.0.0.1:{port}/mcp"
