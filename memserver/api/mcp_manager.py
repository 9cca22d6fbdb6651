"""What of the MCP endpoint needs the SDK, which takes a second to import: see `mcp`."""

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from memserver.api.mcp_server import Asker, Memories, ToolCall, make_server
from memserver.api.middleware.access import Caller
from memserver.wiring.services import Services


def make_manager(services: Services, most_bytes: int) -> StreamableHTTPSessionManager:
    """What answers the requests; whose memories it uses, each request's key says."""
    deps = services.deps
    server = make_server(
        Memories(
            services.database,
            services.archival,
            deps.recall,
            _asker,
            models=deps.models,
        )
    )
    server.streamable_http_app(
        json_response=True,
        stateless_http=True,
        # Host and Origin are looked at by `access`, which knows whether there are keys.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=most_bytes,
    )
    return server.session_manager


def _asker(call: ToolCall) -> Asker:
    request = call.request_context.request
    assert request is not None, "over HTTP there is one"
    caller: Caller = request.state.caller
    return Asker(caller.tenant, caller.may("write"))
