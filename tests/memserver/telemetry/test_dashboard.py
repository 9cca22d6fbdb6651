"""The Grafana dashboard shows metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from memserver.telemetry.metrics import MEASURES
from memserver.testing.scripted import ScriptedModel, say
from tests.support.server import OneDatabase, serving

DASHBOARD = Path(__file__).parents[3] / "deploy" / "grafana" / "memserver.json"
METRIC = re.compile(r"\b(?:memserver|http|gen_ai)_[a-z_]+\b(?!\s*=)")


def expressions() -> list[str]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


async def test_every_metric_and_label_of_the_dashboard_is_in_what_the_server_shows(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel([say("hi")])) as server:
        for measure in MEASURES:  # as if everything had happened once
            server.services.deps.metrics.record(measure, 1, *("x" for _ in measure.labels))
        await server.say(await server.create_agent(), "hello")
        text = (await server.http.get("/metrics")).text
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    labels = {label for each in samples for label in each.labels}
    there = {each.name for each in samples} | labels
    for expression in expressions():
        found = set(METRIC.findall(expression))
        assert found, expression
        assert found <= there, (expression, found - there)
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            assert set(re.split(r",\s*", grouped)) <= labels, expression
    shown = {name for each in expressions() for name in METRIC.findall(each)}
    for measure in MEASURES:
        name = measure.name.replace(".", "_")
        assert any(each.startswith(name) for each in shown), f"{name} is on no panel"
