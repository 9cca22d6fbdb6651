import pytest

from memserver.api.openai.turns import Spoken

HEAR, COMMIT = "hear", "commit"


@pytest.mark.parametrize(
    ("events", "shown"),
    [
        ([(HEAR, 1, "Hel"), (HEAR, 1, "lo"), (COMMIT, "Hello")], "Hello"),
        ([(COMMIT, "Hello")], "Hello"),
        ([(HEAR, 1, "Hel"), (COMMIT, "Hello")], "Hello"),
        ([(HEAR, 1, "Hi"), (COMMIT, "Hi"), (HEAR, 2, "Ho"), (COMMIT, "Ho")], "Hi\n\nHo"),
        ([(COMMIT, "Hi"), (COMMIT, "Ho")], "Hi\n\nHo"),
        ([(COMMIT, "Hi"), (COMMIT, "Hi")], "Hi\n\nHi"),
        ([(HEAR, 1, "He"), (HEAR, 2, "H"), (HEAR, 2, "ello"), (COMMIT, "Hello")], "Hello"),
        ([(HEAR, 1, "Hey"), (HEAR, 2, "Hello"), (COMMIT, "Hello")], "Hey\n\nHello"),
        ([(HEAR, 1, "Hello, B"), (COMMIT, "Hello")], "Hello, B\n\nHello"),
        ([(HEAR, 1, "No"), (COMMIT, "Hi"), (HEAR, 2, "Ho"), (COMMIT, "Ho")], "No\n\nHi\n\nHo"),
    ],
)
def test_what_was_shown_ends_in_what_was_said(events, shown):
    spoken = Spoken()
    assert "".join(getattr(spoken, kind)(*rest) for kind, *rest in events) == shown
