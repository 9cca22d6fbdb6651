"""What the GPU benchmarks make of what they measured."""

import pytest

from benchmarks.agents_under_load import Answering
from benchmarks.gpu import Plan, Side, milliseconds
from benchmarks.gpu_limits import Load, conversations, loads, made_up
from benchmarks.load import Outcome, Run
from benchmarks.prefix_cache import Plan as PrefixPlan
from benchmarks.prefix_cache import complaints, row
from benchmarks.usage import Usage


def outcome(started: float, seconds: float, *, error: str = "", evictions: int = 0) -> Outcome:
    return Outcome(
        "plain",
        started,
        started + seconds,
        first_delta=seconds / 4,
        first_character=seconds / 2,
        prompt_tokens=100,
        output_tokens=10,
        evictions=evictions,
        error=error,
    )


def side(*outcomes: Outcome) -> Side:
    usage = Usage({"vllm_api": 0.5}, {"vllm_api": 0.25}, 40.0)
    return Side([Run(list(outcomes), [], [0.1, 0.3])], [usage], looked_up=200, found=150)


def test_a_rate_counts_what_was_answered_from_the_first_start_to_the_last_end():
    row = side(outcome(10, 1), outcome(10.5, 1.5), outcome(11, 0.1, error="503: down")).row(2, "x")
    assert row["turns_per_s"] == 1
    assert (row["turns"], row["errors"], row["error"]) == (3, 1, "503: down")
    assert (row["p50_ms"], row["first_character_p95_ms"], row["first_delta_p50_ms"]) == (
        1500,
        750,
        375,
    )
    assert row["prefix_cache_hit_ratio"] == 0.75
    assert (row["gpu_percent"], row["cpu_cores"]) == (40, {"vllm_api": 0.5})
    assert row["client_cpu"] == 0.3


def test_a_side_of_which_every_turn_failed_has_no_times():
    row = side(outcome(10, 1, error="no")).row(1, "x")
    assert (row["turns_per_s"], row["p50_ms"], row["output_tokens"]) == (0, None, None)


def test_percentiles_are_of_what_was_measured():
    assert milliseconds([0.001 * n for n in range(1, 101)], 95) == 96
    assert milliseconds([0.002], 95) == 2
    assert milliseconds([], 50) is None


def test_few_agents_have_several_conversations_so_that_a_run_has_enough_turns():
    plan = Plan(agents=(1, 16, 256), turns=5, least_turns=100)
    assert [plan.conversations(agents) for agents in plan.agents] == [20, 32, 256]
    assert plan.most_conversations == 256


def test_evictions_that_did_not_come_are_complained_of():
    plan = PrefixPlan(conversations=1)
    good = row("working_context_first", side(outcome(1, 1, evictions=2)), 1)
    none = row("working_context_last", side(outcome(1, 1)), 1)
    assert complaints([good], plan) == []
    [complaint] = complaints([good, none], plan)
    assert "there were [0]" in complaint


def test_the_loads_end_with_one_client_alone():
    assert loads((64, 256), 8) == [Load(64, 8), Load(256, 8), Load(256, 1), Load(64, 1)]
    assert loads((64,), 1) == [Load(64, 1)]


def test_more_conversations_than_were_recorded_are_refused():
    bodies = made_up(Answering("m", 60), agents=2, turns=3, messages=4)
    assert [len(talk) for talk in conversations(bodies, 2, turns=2)] == [2, 2]
    with pytest.raises(ValueError, match="2 were recorded"):
        conversations(bodies, 3, turns=2)
