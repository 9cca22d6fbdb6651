import json
from pathlib import Path
from typing import Any

import jinja2.sandbox
import pytest

from memserver.local.engine import install

SOURCE = Path(install.__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture
def template() -> jinja2.Template:
    """The template in an environment like the one transformers renders it in."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(SOURCE)


def call(arguments: Any, name: str = "look") -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_plain_chat_is_chatml(template: jinja2.Template) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert template.render(messages=messages, add_generation_prompt=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_without_a_system_message_the_model_gets_its_own(template: jinja2.Template) -> None:
    rendered = template.render(messages=[{"role": "user", "content": "Hi"}])
    assert rendered.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert rendered.endswith("<|im_start|>user\nHi<|im_end|>\n")


def test_tools_stand_in_the_system_message(template: jinja2.Template) -> None:
    rendered = template.render(messages=[{"role": "system", "content": "S"}], tools=[TOOL, TOOL])
    system = rendered.split("<|im_end|>")[0]
    assert system.count('"name": "look"') == 2
    assert "<tools>\n{" in system


@pytest.mark.parametrize("arguments", ['{"at": "it\'s"}', {"at": "it's"}])
def test_calls_and_results_are_rendered_whichever_way_arguments_come(
    template: jinja2.Template, arguments: Any
) -> None:
    messages = [
        {"role": "system", "content": "S"},
        {"role": "assistant", "content": None, "tool_calls": [call(arguments)]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    assert template.render(messages=messages).endswith(
        '<|im_start|>assistant\n<tool_call>\n{"name": "look", "arguments": {"at": "it\'s"}}\n'
        "</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\ndone\n</tool_response><|im_end|>\n"
    )


def test_text_and_several_calls_stand_on_lines_of_their_own(template: jinja2.Template) -> None:
    message = {"role": "assistant", "content": "Well:", "tool_calls": [call("{}"), call("{}")]}
    rendered = template.render(messages=[{"role": "system", "content": None}, message])
    block = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    assert f"<|im_start|>assistant\nWell:\n{block}\n{block}<|im_end|>\n" in rendered
