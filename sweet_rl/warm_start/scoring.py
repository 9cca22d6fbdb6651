"""How well a model does what the traces show: single turns, and plain chat.

A turn is right if it calls the right tool and holds the fact that counts. Turns are generated greedily
and without a grammar, so this is harder than serving.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from sweet_rl.warm_start.chains import Chain
from sweet_rl.warm_start.lessons import IGNORED, chatml, tokens_and_labels

TransformersModel = Any
TransformersTokenizer = Any
BATCH = 96
LONGEST_TURN = 120


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
    rows = [tokens_and_labels(chain, tokenizer) for chain in chains]
    loss, count = 0.0, 0
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        ids, labels = (
            pad_sequence([torch.tensor(row[name]) for row in batch], True, padding).to(model.device)
            for name, padding in (("input_ids", 0), ("labels", IGNORED))
        )
        learnt = int((labels[:, 1:] != IGNORED).sum())
        loss += float(model(input_ids=ids, labels=labels).loss) * learnt
        count += learnt
    return loss / max(1, count)


def _share(found: Sequence[bool]) -> float:
    return round(sum(found) / len(found), 4) if found else 0.0
