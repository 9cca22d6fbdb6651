"""What a training learns from: several folders of chains become one, and no kind of lesson drowns."""

from collections import Counter
from pathlib import Path
from random import Random

from sweet_rl.warm_start import mixing
from sweet_rl.warm_start.chains import Chain, Lesson, read_chains, write_chains
from sweet_rl.warm_start.facts import split_of
from sweet_rl.warm_start.reading import CANT_FIND


def chain(kind: str, goal: str = "", reply: str = "Yes.", before: str = "") -> Chain:
    messages = (
        {"role": "system", "content": before},
        {"role": "user", "content": "Well?"},
        {"role": "assistant", "content": reply},
    )
    return Chain(messages, (Lesson(2, kind, goal),))


BIRTHDAY = chain("ask", "October 16th", "On October 16th.", "[human]\nBirthday: October 16th")


def test_a_mix_repeats_what_acts_samples_reading_and_keeps_the_tests(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("traces", "people", "reading")]
    given_up = chain("read", reply=f"{CANT_FIND} Sorry.")
    contents = (
        [BIRTHDAY, chain("ask", "Rex")],
        [chain("remember"), chain("converse")],
        [chain("read")] * 19_000 + [given_up] * 6_000,
    )
    for folder, chains in zip(folders, contents, strict=True):
        folder.mkdir()
        write_chains(folder / f"train-{folder.name}.jsonl.gz", chains)
    write_chains(folders[0] / "values.jsonl.gz", [BIRTHDAY])
    counts = mixing.mix(folders, tmp_path / "mix")
    assert counts == {"all but reading": 4, "acting again": 1, "reading": 20_000, "other dates": 32}
    mixed = list(read_chains(tmp_path / "mix" / "train.jsonl.gz"))
    assert Counter(lesson.kind for one in mixed for lesson in one.lessons) == {
        "ask": 34,
        "remember": 2,
        "converse": 1,
        "read": 20_000,
    }
    assert sum(one == given_up for one in mixed) == 1_400
    assert list(read_chains(tmp_path / "mix" / "values.jsonl.gz")) == [BIRTHDAY]


def test_another_date_stands_everywhere_in_the_same_form_and_is_one_for_training() -> None:
    varied = list(mixing.with_other_dates(BIRTHDAY, 20, Random(1)))
    dates = {one.lessons[0].goal for one in varied}
    assert len(dates) > 10
    for one in varied:
        date = one.lessons[0].goal
        assert one.messages[0]["content"] == f"[human]\nBirthday: {date}"
        assert one.messages[2]["content"] == f"On {date}."
        month, day = date.split()
        assert day.endswith(("st", "nd", "rd", "th"))
        assert split_of(f"{month} {day[:-2]}") == "train"
    assert list(mixing.with_other_dates(chain("ask", "Rex"), 20, Random(1))) == []
