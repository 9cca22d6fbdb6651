"""A few steps of training with the real model: the adapter learns, is saved, and can be served."""

import json
from pathlib import Path

import pytest

from memserver.local.engine.lora import Adapter
from memserver.local.engine.paths import ADAPTER_WEIGHTS, BASE_NAME, EnginePaths
from sweet_rl.warm_start.chains import Chain, Lesson, tokens_and_labels, write_chains
from tests.support.lazy import lazy
from tests.support.real_engine import engine_home

scoring = lazy("sweet_rl.warm_start.training")
torch = lazy("torch")
training = lazy("sweet_rl.warm_start.training")
transformers = lazy("transformers")

pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
]
CALL = (
    '{"tool": "working_context_append", "arguments": {"section": "human", "content": "Dog: Rex"}}'
)
CHAIN = Chain(
    (
        {"role": "system", "content": "You are Sam."},
        {"role": "user", "content": "[2026-01-01 10:00] My dog is called Rex."},
        {"role": "assistant", "content": CALL},
    ),
    (Lesson(2, "tell", "Dog: Rex"),),
)


@pytest.fixture(scope="module")
def base() -> Path:
    torch.set_num_threads(1)
    return EnginePaths(engine_home()).of(BASE_NAME)


def test_tokens_are_those_of_the_models_own_chat_template(base: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    text = tokenizer.apply_chat_template(list(CHAIN.messages), tokenize=False)
    whole = tokenizer.encode(text, add_special_tokens=False)
    [row] = tokens_and_labels([CHAIN], tokenizer)
    assert row["input_ids"] == whole


def test_a_few_steps_make_the_right_turn_likelier_and_leave_an_adapter(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {held_out: training.plain_chats(held_out=held_out)[:4] for held_out in (False, True)}
    monkeypatch.setattr(
        "sweet_rl.warm_start.training.plain_chats", lambda *, held_out: few[held_out]
    )
    write_chains(tmp_path / "train.jsonl.gz", [CHAIN] * 8)
    recipe = training.WarmStartRecipe(steps=4, batch=2, rate=1e-3, rank=4)
    figures = training.train(base, tmp_path, tmp_path / "out", recipe)
    assert (figures["chains"], figures["plain_chats"], figures["steps"]) == (8, 4, 4)
    adapter = tmp_path / "out" / "adapter"
    assert len(Adapter(adapter).targets) == 210
    assert (adapter / ADAPTER_WEIGHTS).stat().st_size < 3_000_000, "bf16"
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = scoring.nats_per_token(model, tokenizer, [CHAIN])
    model.load_adapter(str(adapter))
    assert scoring.nats_per_token(model, tokenizer, [CHAIN]) < before - 0.1
    [text] = scoring.generate(
        model, tokenizer, ["<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"], 8
    )
    assert text


def test_a_run_without_questions_ends_with_its_figures_and_examines_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "sweet_rl.warm_start.training.train", lambda *_: {"steps": 3, "losses": [[1, 2.0]]}
    )
    arguments = [str(tmp_path), "--model", "none", "--out", str(tmp_path / "out")]
    assert training.main([*arguments, "--questions", "0"]) == 0
    assert json.loads(capsys.readouterr().out) == {"training": {"steps": 3}}
    assert "trained" not in json.loads((tmp_path / "out" / "figures.json").read_text())


@pytest.mark.parametrize("missing", ["model", "adapter", "traces"])
def test_what_a_training_lacks_is_said_in_a_line(
    tiny_base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    model = tmp_path / "none" if missing == "model" else tiny_base
    arguments = [str(tmp_path / "traces"), "--model", str(model), "--out", str(tmp_path / "out")]
    if missing == "adapter":
        arguments += ["--adapter", str(tmp_path / "none")]
    assert training.main(arguments) == 1
    [line] = capsys.readouterr().err.splitlines()
    wanted = {"model": "none holds no model.", "adapter": "none holds no adapter."}
    assert wanted.get(missing, "traces holds no traces.") in line


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (CALL, True),
        (CALL.replace("Rex", "rex"), True),
        (CALL.replace("Rex", "Bo"), False),
        (CALL.replace("append", "replace"), False),
        (CALL[:-3], False),
        ("[1]", False),
        (json.dumps({"tool": "working_context_append"}), False),
    ],
)
def test_a_turn_is_right_with_the_right_tool_and_the_fact_that_counts(
    answer: str, right: bool
) -> None:
    assert scoring.is_right(scoring.Question("", CALL, "tell", "Dog: Rex"), answer) is right
