"""What the summary benchmark counts as kept is kept, and what it counts is the evicted sessions' facts."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from benchmarks import summary
from benchmarks.summary import Method, content_words, dialogue, run, shares
from memserver.settings import Settings
from tests.support.server import OneDatabase

ROW = {
    "sessions": [
        [{"speaker": "A", "text": f"Oh {number} well."} for number in range(150)]
        + [{"speaker": "A", "text": "My cats are called Tom and Ada."}],
        [{"speaker": "B", "text": "We studied the old movie."}] * 150,
        [{"speaker": "A", "text": "Good night."}],
    ],
    "summaries": [
        [["I have two cats, Tom and Ada."], []],
        [["I ski."], ["I study movies."]],
        [["Night."], []],
    ],
    "gaps": ["6 days", "1 hour", "2 hours"],
}


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    made = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_words_that_differ_by_their_ending_are_the_same_and_stop_words_are_none() -> None:
    assert content_words("I have studied the movies") == content_words("she studies movie")
    assert content_words("Running dogs, a dog's runs") == {"run", "dog"}
    assert content_words("I would have been there, it's what they do") == set()


def test_a_facts_share_is_that_of_its_content_words() -> None:
    facts = ["I have two cats, Tom and Ada.", "I am.", "I ski."]
    assert shares(facts, "Her cat is Tom.") == [0.5, 0.0]
    assert shares(facts, "Two cats: Ada, Tom. Skiing!") == [1.0, 1.0]


async def test_the_facts_of_evicted_sessions_are_looked_for_in_the_summary(
    database: OneDatabase, tokenizer: Path
) -> None:
    asked = Namespace(tokenizer=tokenizer, at_once=2, window=2048)
    settings = Settings(_env_file=None, summary_method="extract", jobs_at_once=0)
    talks = [dialogue(ROW)] * 2
    outcomes = await run(summary.EXTRACT, database.app, settings, talks, asked)
    assert [outcome.facts for outcome in outcomes] == [[["I have two cats, Tom and Ada."]]] * 2
    assert all(outcome.evictions >= 2 for outcome in outcomes)
    method = Method("extract", outcomes)
    figures = method.figures([outcome.summary for outcome in outcomes])
    assert (figures["fact_share"], figures["facts"]) == (1.0, 2)
    assert method.figures(["", ""])["fact_share"] == 0.0
    assert json.dumps(method.costs())
