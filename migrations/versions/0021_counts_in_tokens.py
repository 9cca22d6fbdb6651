"""Messages that were counted in bytes get about their tokens, and the scale of bytes is forgotten.

Where no endpoint counted, a count was the number of bytes, and an agent's scale, learnt of the endpoint's usage,
made tokens of it: .25 for English. Counts are in tokens now. Only what still stands in a queue is counted again.
"""

from alembic import op

revision = "0021"
down_revision = "0020"

IN_BYTES = "token_scale < 0.75"


def upgrade() -> None:
    """Multiply by the scale, and let it be learnt again."""
    op.execute(f"""
        UPDATE messages m SET tokens = greatest(1, ceil(m.tokens * s.token_scale))::integer
        FROM agent_state s
        WHERE s.agent_id = m.agent_id AND m.position >= s.queue_start AND s.{IN_BYTES}
    """)
    op.execute(
        f"UPDATE agent_state SET token_scale = NULL, token_scale_model = NULL WHERE {IN_BYTES}"
    )
