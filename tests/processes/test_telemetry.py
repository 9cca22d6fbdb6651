"""Traces and metrics reach a collector."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.requests import Request
from starlette.responses import Response

from tests.support.http_app import serving
from tests.support.processes import client, server, settings_on
from tests.support.server import OneDatabase
from tests.support.servers import ServerProcess

pytestmark = pytest.mark.slow
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector:
    """Keeps spans by name and the names of metrics."""

    def __init__(self) -> None:
        self.spans: dict[str, Any] = {}
        self.metrics: set[str] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        body = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if request.url.path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for found in resource.scope_spans:
                    self.spans |= {each.name: each for each in found.spans}
        else:
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for found in resource.scope_metrics:
                    self.metrics |= {each.name for each in found.metrics}
        await Response()(scope, receive, send)


async def test_a_turns_trace_continues_the_callers_and_has_its_model_and_tool(
    folder: Path, database: OneDatabase, echo: ServerProcess
) -> None:
    collector = Collector()
    with serving(collector) as url:
        settings = settings_on(database, echo.url, otlp_endpoint=url, metrics="off")
        with server(folder, settings) as process:
            async with client(process) as user:
                agent = await user.create_agent()
                answer = await user.http.post(
                    f"/v1/agents/{agent}/messages",
                    json={"text": "hello"},
                    headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"},
                )
                assert answer.status_code == 200
                await user.http.get(f"/v1/agents/{agent}/recall/search?query=hello&limit=5")
            assert process.terminate() == 0
    request, turn, model, tool = (
        collector.spans[name]
        for name in (
            "POST /v1/agents/{agent}/messages",
            "invoke_agent",
            "chat scripted",
            "execute_tool send_message",
        )
    )
    search = collector.spans["GET /v1/agents/{agent}/recall/search"]
    [query] = [each.value for each in search.attributes if each.key == "url.query"]
    assert query.string_value == "query=REDACTED&limit=REDACTED"
    assert {each.trace_id.hex() for each in (request, turn, model, tool)} == {TRACE}
    assert turn.parent_span_id == request.span_id
    assert (model.parent_span_id, tool.parent_span_id) == (turn.span_id, turn.span_id)
    named = {each.key: each.value for each in model.attributes}
    assert named["gen_ai.usage.output_tokens"].int_value > 0
    assert named["gen_ai.operation.name"].string_value == "chat"
    assert collector.metrics >= {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "memserver.turn.duration",
        "http.server.request.duration",
    }
