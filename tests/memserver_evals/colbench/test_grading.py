"""What counts as the same answer, and what doesn't."""

import pytest

from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.backend.grading import Grade, Grader
from memserver_evals.colbench.sandbox.pool import Sandbox
from memserver_evals.colbench.sandbox.values import read_outcome

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def grade(sandbox: Sandbox, reference: str, answer: str) -> Grade:
    example = BackendExample("one", "Write f().", f"def f():\n    return {reference}", ("f()",))
    return await Grader(sandbox).grade(example, f"def f():\n    return {answer}")


SAME = [
    ("1", "True + 0"),
    ("[1, (2.5, 'x'), None]", "[1, (2.5, 'x'), None]"),
    ("{'a': 1, 'b': [2]}", "{'b': [2], 'a': 1}"),
    ("{1, 2, 3}", "{3, 2, 1}"),
    ("{1: 'a', 'x': {2}}", "{'x': {2}, 1: 'a'}"),
    ("float('nan')", "float('nan')"),
    ("[float('nan')]", "[float('inf') - float('inf')]"),
    ("0.0", "-0.0"),
    ("{'a': 1}", "__import__('collections').Counter('a')"),
    ("{'a': [1]}", "__import__('collections').defaultdict(list, a=[1])"),
    ("10 ** 5000", "10 ** 5000"),
    ("__import__('datetime').date(2024, 2, 29)", "__import__('datetime').date(2024, 2, 29)"),
    ("__import__('decimal').Decimal('1.0')", "__import__('decimal').Decimal('1.0')"),
    ("type('x')", "str"),
    ("b'x'", "bytes([120])"),
    ("'\\ud800'", "chr(0xd800)"),
]
OTHER = [
    ("1", "True"),
    ("1", "1.0"),
    ("True", "1"),
    ("0", "False"),
    ("0", "None"),
    ("[1]", "(1,)"),
    ("[[1]]", "[(1,)]"),
    ("[1, [True]]", "[1, [1]]"),
    ("{'a': 1}", "{'a': True}"),
    ("{1: 'a'}", "{True: 'a'}"),
    ("{1}", "frozenset({1})"),
    ("[1, 2]", "[2, 1]"),
    ("[1, 2]", "iter([1, 2])"),
    ("'1'", "1"),
    ("b'x'", "'x'"),
    ("0.3", "0.1 + 0.2"),
    ("float('inf')", "10 ** 309"),
    ("[1]", "type('L', (list,), {})([1])"),
    ("1", "type('I', (int,), {})(1)"),
    ("1", "type('Yes', (), {'__eq__': lambda self, other: True})()"),
    (
        "[1]",
        "[type('Yes', (), {'__eq__': lambda self, other: True, '__hash__': lambda self: 1})()]",
    ),
    ("1", "type('Meta', (type,), {'__eq__': lambda c, o: True, '__hash__': id})('Yes', (), {})"),
    ("object()", "object()"),
    ("(lambda: 1)", "(lambda: 1)"),
    ("1 / 0", "1 / 0"),
    ("1", "f()"),
]


@pytest.mark.parametrize(("reference", "answer"), SAME)
async def test_equal_data_of_equal_types_passes(
    sandbox: Sandbox, reference: str, answer: str
) -> None:
    assert (await grade(sandbox, reference, answer)).passed == (True,)


@pytest.mark.parametrize(("reference", "answer"), OTHER)
async def test_anything_else_fails(sandbox: Sandbox, reference: str, answer: str) -> None:
    assert (await grade(sandbox, reference, answer)).passed == (False,)


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [
        ("1", "1.0", True),
        ("[1, {'a': (True,)}]", "[1.0, {'a': (1,)}]", True),
        ("{1: {2}}", "{True: frozenset({2.0})}", True),
        ("[1]", "(1,)", False),
        ("'1'", "1", False),
        ("None", "None", False),
        ("float('nan')", "float('nan')", False),
        ("1", "type('Yes', (), {'__eq__': lambda self, other: True})()", False),
    ],
)
async def test_the_released_comparison_is_reported_too(
    sandbox: Sandbox, reference: str, answer: str, equal: bool
) -> None:
    assert (await grade(sandbox, reference, answer)).passed_by_operator == (equal,)


@pytest.mark.parametrize("line", ['["set", ["list"]]', '["int", "x"]', '["dict", [["list"], "x"]]'])
async def test_a_value_that_no_python_has_equals_nothing(line: str) -> None:
    outcome = read_outcome(f'["value", {line}]')
    assert outcome.value
    assert not outcome.equals_by_operator(outcome)


async def test_a_value_that_holds_itself_or_is_huge_equals_nothing(sandbox: Sandbox) -> None:
    source = """
def round_trip():
    x = []
    x.append(x)
    return x

def wide():
    return list(range(10**6))

def deep():
    x = []
    for _ in range(500):
        x = [x]
    return x
"""
    calls = ("round_trip()", "wide()", "deep()")
    graded = await Grader(sandbox).grade(BackendExample("x", "d", source, calls), source)
    assert graded.passed == (False, False, False)


async def test_an_answer_can_t_pass_by_what_it_does_to_the_comparison(sandbox: Sandbox) -> None:
    example = BackendExample("x", "d", "def f(n):\n    return n * 7", ("f(1)", "f(2)", "f(3)"))
    attacks = (
        "import os\ndef f(n):\n    os.write(3, b'[\"value\", true]\\n' * 9)\n    os._exit(0)",
        "import json\njson.dumps = lambda *a: '[\"value\", true]'\ndef f(n):\n    return 0",
        "import builtins\nbuiltins.type = lambda x: int\ndef f(n):\n    return n",
        "import gc\ndef f(n):\n    return [x for x in gc.get_objects() if x == n * 7 and type(x) is int]",
        "class X(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__\ndef f(n):\n    return X(0)",
        "raise SystemExit(0)",
        "",
    )
    grader = Grader(sandbox)
    for attack in attacks:
        assert (await grader.grade(example, attack)).share == 0, attack


async def test_the_share_counts_calls_that_the_reference_can_t_do_either(sandbox: Sandbox) -> None:
    example = BackendExample("x", "d", "def f(n):\n    return 6 // n", ("f(1)", "f(0)"))
    graded = await Grader(sandbox).grade(example, example.reference)
    assert graded.passed == (True, False)
    assert graded.share == 0.5


async def test_a_reference_is_run_once_for_many_answers(sandbox: Sandbox) -> None:
    grader = Grader(sandbox, kept=2)
    examples = [
        BackendExample(str(n), "d", f"import os\ndef f():\n    return {n}", ("f()",))
        for n in range(3)
    ]
    for example in examples:
        assert await grader.expected(example) is await grader.expected(example)
    assert len(grader._expected) == 2
