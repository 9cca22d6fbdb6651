"""Generated passages, which the benchmarks search."""

import numpy as np

from benchmarks.generated import GeneratedPassages


def test_generated_passages_are_the_same_for_a_seed_and_of_unit_length() -> None:
    first, again, other = (GeneratedPassages(seed, 100, 100) for seed in (1, 1, 2))
    (vectors, texts), (same, same_texts), (different, _) = (
        made.next(20) for made in (first, again, other)
    )
    assert np.array_equal(vectors, same)
    assert texts == same_texts
    assert not np.array_equal(vectors, different)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
