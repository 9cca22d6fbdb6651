"""Chains as tokens: what is learnt of them, and what is not."""

from pathlib import Path

from sweet_rl.warm_start.chains import (
    IGNORED,
    Chain,
    Lesson,
    chatml,
    dataset_rows,
    read_chains,
    tokens_and_labels,
    write_chains,
)

SYSTEM = {"role": "system", "content": "Be kind."}


class Characters:
    """A tokenizer whose tokens are characters."""

    def __call__(
        self, texts: list[str], /, *, add_special_tokens: bool
    ) -> dict[str, list[list[int]]]:
        assert not add_special_tokens
        return {"input_ids": [[ord(character) for character in text] for text in texts]}


def learnt(chain: Chain) -> str:
    [row] = tokens_and_labels([chain], Characters())
    assert len(row["labels"]) == len(row["input_ids"])
    pairs = zip(row["input_ids"], row["labels"], strict=True)
    assert all(label in (token, IGNORED) for token, label in pairs)
    return "".join(chr(label) if label != IGNORED else "·" for label in row["labels"])


def chain(*contents: tuple[str, str], kinds: dict[int, str]) -> Chain:
    messages = (SYSTEM, *({"role": role, "content": text} for role, text in contents))
    return Chain(messages, tuple(Lesson(place, kind, "") for place, kind in kinds.items()))


def test_only_the_marked_turns_are_learnt_each_to_its_end_token() -> None:
    made = chain(
        ("user", "Hi"), ("assistant", "A"), ("user", "Ho"), ("assistant", "B"), kinds={4: "ask"}
    )
    assert learnt(made).strip("·") == "B<|im_end|>"
    both = Chain(made.messages, (Lesson(2, "ask", ""), Lesson(4, "ask", "")))
    assert [part for part in learnt(both).split("·") if part] == ["A<|im_end|>", "B<|im_end|>"]
    [row] = tokens_and_labels([both], Characters())
    whole = "".join(map(chr, row["input_ids"]))
    assert whole + "<|im_start|>assistant\n" == chatml(both.messages)


def test_of_most_small_talk_only_the_decision_is_learnt() -> None:
    start = '{"tool": "send_message", "arguments": {"message": "'
    ends = set()
    for number in range(60):
        said = f'{start}Nice {number}!"}}}}'
        end = learnt(chain(("user", "Hi"), ("assistant", said), kinds={2: "chat"})).strip("·")
        assert end in (start, f"{said}<|im_end|>")
        ends.add(end == start)
        asked = chain(("user", "Hi"), ("assistant", said), kinds={2: "ask"})
        assert learnt(asked).strip("·") == f"{said}<|im_end|>"
    assert ends == {True, False}


def test_a_chain_that_is_too_long_is_left_out() -> None:
    short = chain(("user", "Hi"), ("assistant", "A"), kinds={2: "ask"})
    long = chain(("user", "Hi" * 500), ("assistant", "A"), kinds={2: "ask"})
    assert len(dataset_rows([short, long], Characters(), longest=500)) == 1


def test_many_chains_have_the_rows_of_each_alone() -> None:
    many = [
        chain(("user", "Hi" * number), ("assistant", f"A{number}"), kinds={2: "ask"})
        for number in range(1001)
    ]
    rows = list(tokens_and_labels(many, Characters()))
    assert rows == [row for one in many for row in tokens_and_labels([one], Characters())]


def test_chains_are_read_as_they_were_written(tmp_path: Path) -> None:
    chains = [chain(("user", "Ça va? 🙂"), ("assistant", "Oui"), kinds={2: "ask"})]
    assert write_chains(tmp_path / "chains.jsonl.gz", chains) == 1
    assert list(read_chains(tmp_path / "chains.jsonl.gz")) == chains
    assert [path.name for path in tmp_path.iterdir()] == ["chains.jsonl.gz"]
