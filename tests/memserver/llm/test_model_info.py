"""A model's card is found under every form of its name, and says the window that holds."""

from typing import Any

import pytest

from memserver.llm.model_info import base_of, find_card, window_of


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("m", "m"),
        ("gemini-2.5-pro", "models/gemini-2.5-pro"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("llama3.2", "llama3.2:latest"),
        ("llama3.2:latest", "llama3.2"),
        ("x/y:free", "x/y"),
        ("x/y:nitro", "x/y"),
        ("Qwen/Qwen3-8B", "qwen/qwen3-8b"),
    ],
)
def test_a_card_is_found_under_every_form_of_its_name(name: str, listed: str) -> None:
    cards = [{"id": "other"}, {"id": listed}]
    assert find_card(name, cards) == {"id": listed}


@pytest.mark.parametrize(
    ("name", "listed"),
    [("m", "m2"), ("llama3.2", "llama3.2:1b"), ("llama3.2:1b", "llama3.2"), ("x/y", "x/y:free")],
)
def test_another_model_is_not_found(name: str, listed: str) -> None:
    assert find_card(name, [{"id": listed}]) is None


def test_the_exact_name_is_found_before_its_other_forms() -> None:
    cards = [{"id": "M"}, {"id": "m:latest"}, {"id": "x"}, {"id": "x:free"}, {"id": "m"}]
    assert find_card("m", cards) == {"id": "m"}
    assert find_card("x:free", cards) == {"id": "x:free"}


def test_a_card_is_found_by_its_alias() -> None:
    card = {"id": "mistral-small-2506", "aliases": ["mistral-small-latest"]}
    assert find_card("mistral-small-latest", [card]) is card


@pytest.mark.parametrize(
    ("card", "window"),
    [
        ({"max_model_len": 4096}, 4096),
        ({"context_length": 4096}, 4096),
        ({"context_window": 4096}, 4096),
        ({"max_context_length": 4096}, 4096),
        ({"max_context_tokens": 4096}, 4096),
        ({"inputTokenLimit": 4096}, 4096),
        ({"loaded_context_length": 4096, "max_context_length": 131072}, 4096),
        ({"meta": {"n_ctx": 4096, "n_ctx_train": 131072}}, 4096),
        ({"meta": {"n_ctx_train": 131072}}, None),
        ({"context_length": 131072, "top_provider": {"context_length": 4096}}, 4096),
        ({"context_length": 4096, "top_provider": {"context_length": None}}, 4096),
        ({"context_length": 0}, None),
        ({"context_length": "4096"}, None),
        ({"context_length": True}, None),
        ({"meta": None, "top_provider": 3}, None),
        ({"parent": "base"}, 2048),
        ({"parent": "base", "max_model_len": 1024}, 1024),
    ],
)
def test_a_card_says_the_window_that_holds(card: dict[str, Any], window: int | None) -> None:
    cards = [{"id": "base", "max_model_len": 2048}, {"id": "m", **card}]
    assert window_of("m", cards) == window


def test_the_only_model_of_a_list_has_its_window_whatever_it_is_asked_by() -> None:
    card = {"id": "/models/small.gguf", "meta": {"n_ctx": 4096}}
    assert window_of("small", [card]) == 4096
    assert window_of("small", [card, {"id": "other"}]) is None


def test_a_models_base_is_what_its_card_names() -> None:
    cards = [{"id": "base"}, {"id": "one", "parent": "base"}, {"id": "m:latest"}]
    assert [base_of(name, cards) for name in ("base", "one", "m", "none")] == [
        "base", "base", "m:latest", None,
    ]  # fmt: skip
