"""Whether an answer says that it can't be known, in any of the ways that benchmarks, readers and agents say so."""

from memserver_evals.scoring.documents import is_insufficient
from memserver_evals.scoring.locomo import refuses
from memserver_evals.scoring.text import admits_not_knowing


def abstains(answer: str) -> bool:
    return refuses(answer) or is_insufficient(answer) or admits_not_knowing(answer)
