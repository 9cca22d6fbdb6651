"""The tools that the settings bring."""

from collections.abc import Sequence

from memserver.settings import Settings
from memserver.tools.loading import load_tools
from memserver.tools.mcp_tools import McpConnections
from memserver.tools.memory_tools import memory_tools
from memserver.tools.outbound.mcp import HttpServer, StdioServer
from memserver.tools.outbound.webhooks import WebhookSender
from memserver.tools.registry import ToolRegistry
from memserver.tools.schedule import schedule_tool
from memserver.tools.tool import RunnableTool, SpecStyle


def registry(
    settings: Settings, tools: Sequence[RunnableTool], webhooks: WebhookSender, mcp: McpConnections
) -> ToolRegistry:
    # Too small to think is too small for more after an answer.
    ours = [*memory_tools(more_after_answer=not settings.llm_thought_last), schedule_tool()]
    style = SpecStyle(settings.llm_thought_last, settings.llm_longest_text)
    return ToolRegistry([*ours, *tools], style, webhooks, mcp)


def python_tools(settings: Settings) -> list[RunnableTool]:
    """The Python functions that packages bring as tools. Raises SetupError, with file and line."""
    ours = [*memory_tools(), schedule_tool()]
    return load_tools(settings.tools, taken=[tool.spec.name for tool in ours])


def configured_mcp_servers(settings: Settings) -> dict[str, StdioServer | HttpServer]:
    made: dict[str, StdioServer | HttpServer] = {}
    for name, server in settings.mcp_servers.items():
        if server.command is not None:
            made[name] = StdioServer(server.command, server.args, server.env)
        elif server.url is not None:
            made[name] = HttpServer(server.url, server.headers, networks=None)
    return made
