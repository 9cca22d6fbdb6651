"""Training a LoRA adapter on traces: `python -m sweet_rl.warm_start.training --help`.

A loss is taken on the agent's turns alone. A run times its first steps and fits itself into the time it may
take; it saves as it goes and resumes where it broke off (`fitting`). Tests are single turns and plain chat. A turn is
right if it calls the right tool and holds the fact that counts; turns are generated greedily and without a grammar, so
this is harder than serving.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from memserver.errors import InvalidInput, MemserverError
from sweet_rl import adapters
from sweet_rl.warm_start.chains import (
    IGNORED,
    TESTS,
    Chain,
    Lesson,
    chatml,
    dataset_rows,
    read_chains,
    tokens_and_labels,
)
from sweet_rl.warm_start.fitting import Schedule, fit, is_first, join, padded
from sweet_rl.warm_start.keeping import ChainsBesideChat
from sweet_rl.warm_start.wordings import DATA

TransformersModel = Any
TransformersTokenizer = Any
BATCH = 96
LONGEST_TURN = 120
PLAIN_CHATS = {
    "plain.jsonl": "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    "replies.jsonl": "You are Sam, a friendly companion. Answer in one or two short sentences.",
}
"""Files of the untrained model's answers, with their system messages; the first one is the template's."""
SEED = 1
LONGEST_CHAIN = 3584
"""Tokens; longer ones are left out."""


@dataclass(frozen=True, slots=True)
class Question:
    prompt: str
    right: str
    kind: str
    goal: str


def questions(chains: Iterable[Chain], most: int) -> list[Question]:
    """The turns of chains, evenly chosen where there are more than `most`. Summaries are left out."""
    found = [
        Question(
            chatml(chain.messages[: lesson.message]),
            chain.messages[lesson.message]["content"],
            lesson.kind,
            lesson.goal,
        )
        for chain in chains
        for lesson in chain.lessons
        if lesson.kind != "summary"
    ]
    step = max(1, len(found) / max(1, most))
    return [found[int(index * step)] for index in range(min(most, len(found)))]


def score(
    model: TransformersModel, tokenizer: TransformersTokenizer, asked: Sequence[Question]
) -> dict[str, Any]:
    by_kind: dict[str, list[bool]] = defaultdict(list)
    wrong: list[dict[str, str]] = []
    ordered = sorted(asked, key=lambda question: len(question.prompt))
    for start in range(0, len(ordered), BATCH):
        batch = ordered[start : start + BATCH]
        answers = generate(model, tokenizer, [question.prompt for question in batch])
        for question, answer in zip(batch, answers, strict=True):
            right = is_right(question, answer)
            by_kind[question.kind].append(right)
            if not right and len(wrong) < 40:
                shown = question.prompt[-700:]
                wrong.append({"prompt": shown, "right": question.right, "answer": answer})
    every = [right for kind in by_kind.values() for right in kind]
    return {
        "right": _share(every),
        "turns": len(every),
        "by_kind": {kind: _share(found) for kind, found in sorted(by_kind.items())},
        "wrong": wrong,
    }


def is_right(question: Question, answer: str) -> bool:
    try:
        said, right = json.loads(answer), json.loads(question.right)
        return said["tool"] == right["tool"] and question.goal.lower() in json.dumps(
            said["arguments"], ensure_ascii=False
        ).lower().replace('\\"', '"')
    except (ValueError, KeyError, TypeError):
        return False


@torch.no_grad()  # type: ignore[untyped-decorator]
def generate(
    model: TransformersModel,
    tokenizer: TransformersTokenizer,
    prompts: Sequence[str],
    longest: int = LONGEST_TURN,
) -> list[str]:
    tokenizer.padding_side = "left"
    inputs = tokenizer(
        list(prompts), return_tensors="pt", padding=True, add_special_tokens=False
    ).to(model.device)
    ended = tokenizer.convert_tokens_to_ids("<|im_end|>")
    with torch.autocast(model.device.type, dtype=torch.bfloat16):
        generated = model.generate(
            **inputs,
            max_new_tokens=longest,
            do_sample=False,
            eos_token_id=ended,
            pad_token_id=tokenizer.pad_token_id or ended,
        )
    texts: list[str] = tokenizer.batch_decode(
        generated[:, inputs.input_ids.shape[1] :], skip_special_tokens=True
    )
    return texts


@torch.no_grad()  # type: ignore[untyped-decorator]
def nats_per_token(
    model: TransformersModel, tokenizer: TransformersTokenizer, chains: Iterable[Chain]
) -> float:
    """Mean negative log-likelihood of the marked turns; lower is more like the model's own words."""
    rows = list(tokens_and_labels(chains, tokenizer))
    loss, count = 0.0, 0
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        ids, labels = padded(batch, model.device)
        learnt = int((labels[:, 1:] != IGNORED).sum())
        loss += float(model(input_ids=ids, labels=labels).loss) * learnt
        count += learnt
    return loss / max(1, count)


def _share(found: Sequence[bool]) -> float:
    return round(sum(found) / len(found), 4) if found else 0.0


def _option(kind: type, help_: str, default: object = None) -> Any:  # noqa: ANN401 - as dataclasses have it
    return field(default=default, metadata={"type": kind, "help": help_})


@dataclass(frozen=True, slots=True)
class WarmStartRecipe:
    """Each field is an option of the command."""

    seconds: float | None = _option(float, "that training may take; else as long as the epochs do")
    epochs: float = _option(float, "at most", 3)
    steps: int | None = _option(int, "at most")
    batch: int = _option(int, "chains in a step", 32)
    rate: float = _option(float, "the highest learning rate", 4e-4)
    rank: int = _option(int, "of a new adapter", 16)
    adapter: Path | None = _option(Path, "one to start from, instead of a new one")  # noqa: RUF009 - a field


def plain_chats(*, held_out: bool) -> list[Chain]:
    return [
        Chain(
            (
                {"role": "system", "content": system},
                {"role": "user", "content": each["text"]},
                {"role": "assistant", "content": each["reply"]},
            ),
            (Lesson(2, "plain", ""),),
        )
        for name, system in PLAIN_CHATS.items()
        for each in map(json.loads, (DATA / name).read_text(encoding="utf-8").splitlines())
        if each["held_out"] == held_out
    ]


def train(model_path: Path, traces: Path, out: Path, recipe: WarmStartRecipe) -> dict[str, Any]:
    """Train on the traces of a folder, beside the untrained model's own plain chat.

    Raises:
        InvalidInput: there is no model, no adapter or no trace where one should be.
    """
    base = adapters.load_base(model_path)
    model = adapters.to_train(base, recipe.adapter, rank=recipe.rank, seed=SEED)
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    files = sorted(traces.glob("train*.jsonl.gz"))
    chains = [chain for file in files for chain in read_chains(file)]
    if not chains:
        raise InvalidInput(
            f"{traces} holds no traces.", hint="Make a mix: see docs/local_model.md."
        )
    rows = dataset_rows(chains, tokenizer, longest=LONGEST_CHAIN)
    chats = dataset_rows(plain_chats(held_out=False), tokenizer, longest=LONGEST_CHAIN)
    per_epoch = len(rows) / recipe.batch
    wanted = int(min(per_epoch * recipe.epochs, recipe.steps or float("inf")))
    start = time.monotonic()
    schedule = Schedule(max(1, wanted), recipe.batch, recipe.rate, recipe.seconds, SEED)
    learning = ChainsBesideChat(adapters.load_base(model_path), chats, seed=SEED)
    fitted = fit(model, rows, out / "training.pt", schedule, learning)
    if is_first():
        adapters.save(model, out / "adapter", base=model_path.name)
    return {
        "chains": len(chains),
        "plain_chats": len(chats),
        "tokens_an_epoch": sum(len(row["input_ids"]) for row in rows),
        "steps": fitted.steps,
        "epochs": round(fitted.steps / per_epoch, 2),
        "seconds": round(time.monotonic() - start, 1),
        "loss": round(sum(loss for _, loss in fitted.losses) / len(fitted.losses), 4),
        "losses": fitted.losses,
        "divergences": learning.divergences[9::10],
        "recipe": {
            "batch": recipe.batch,
            "rate": recipe.rate,
            "rank": model.peft_config[adapters.TRAINED].r,
        },
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }


def examine(
    model: TransformersModel, tokenizer: TransformersTokenizer, traces: Path, most: int
) -> dict[str, Any]:
    model.eval()
    figures: dict[str, Any] = {
        name: score(model, tokenizer, questions(read_chains(traces / f"{name}.jsonl.gz"), most))
        for name in TESTS
        if (traces / f"{name}.jsonl.gz").is_file()
    }
    plain = plain_chats(held_out=True)
    answers = generate(
        model, tokenizer, [chatml(chain.messages[:2]) for chain in plain], longest=60
    )
    figures["plain_chat"] = {
        "chats": len(plain),
        "nats_per_token": round(nats_per_token(model, tokenizer, plain), 4),
        "json_instead_of_text": sum(answer.lstrip().startswith("{") for answer in answers),
        "distinct_answers": len(set(answers)),
        "answers": [
            [chain.messages[1]["content"], answer]
            for chain, answer in islice(zip(plain, answers, strict=True), 12)
        ],
    }
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, argument_default=argparse.SUPPRESS)
    parser.add_argument("traces", type=Path, help="the folder of the traces")
    parser.add_argument("--model", type=Path, required=True, help="the untrained model's folder")
    parser.add_argument("--out", type=Path, required=True, help="where adapter and figures go")
    for each in fields(WarmStartRecipe):
        parser.add_argument(f"--{each.name}", **each.metadata)
    parser.add_argument(
        "--questions", type=int, default=400, help="turns in each test; 0: no tests"
    )
    options = parser.parse_args(arguments)
    if options.questions < 0:
        parser.error("--questions must be 0 or more")
    names = {each.name for each in fields(WarmStartRecipe)}
    recipe = WarmStartRecipe(**{name: vars(options)[name] for name in names & vars(options).keys()})
    options.out.mkdir(parents=True, exist_ok=True)
    join()
    try:
        figures = {"training": train(options.model, options.traces, options.out, recipe)}
    except MemserverError as error:
        sys.stderr.write(f"{error.message} {error.hint or ''}".strip() + "\n")
        return 1
    if not is_first():
        return 0
    file = options.out / "figures.json"
    file.write_text(json.dumps(figures, indent=1, ensure_ascii=False), encoding="utf-8")
    if options.questions:
        tokenizer = AutoTokenizer.from_pretrained(options.model)
        model = adapters.load_base(options.model)
        fewer = max(1, options.questions // 2)
        figures["untrained"] = examine(model, tokenizer, options.traces, fewer)
        model.load_adapter(str(options.out / "adapter"))
        figures["trained"] = examine(model, tokenizer, options.traces, options.questions)
        file.write_text(json.dumps(figures, indent=1, ensure_ascii=False), encoding="utf-8")
    sys.stdout.write(json.dumps(_without_texts(figures)) + "\n")
    return 0


def _without_texts(figures: dict[str, Any]) -> dict[str, Any]:
    dropped = {"wrong", "answers", "losses", "divergences"}
    if not isinstance(figures, dict):
        return figures
    return {name: _without_texts(value) for name, value in figures.items() if name not in dropped}


if __name__ == "__main__":
    sys.exit(main())
