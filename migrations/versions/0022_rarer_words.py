"""Words in three of a thousand messages are known as common, not only those in one of a hundred.

What is looked at by a search by words was bounded only by the words that are known as common: two others, each in just
under a hundredth of a long history, were thousands of messages. An agent's words are counted again as it grows.
"""

from alembic import op

revision = "0022"
down_revision = "0021"

COUNTING = """
CREATE OR REPLACE FUNCTION count_common_words() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    state recall_index;
    nth bigint;
BEGIN
    FOR state IN SELECT * FROM recall_index
                 WHERE waiting AND messages >= 2000 AND messages >= 1.5 * counted ORDER BY agent_id
    LOOP
        nth := state.messages / 10000 + 1;
        DELETE FROM message_word_shares WHERE agent_id = state.agent_id;
        INSERT INTO message_word_shares
        SELECT state.agent_id, w.word, state.tenant, count(*)::real / w.looked_at
        FROM (SELECT lexemes, count(*) OVER () AS looked_at FROM message_words
              WHERE agent_id = state.agent_id AND abs(hashint8extended(position, 0) % nth) = 0) looked_at,
             LATERAL (SELECT word, looked_at FROM unnest(tsvector_to_array(lexemes)) AS u (word)) w
        GROUP BY w.word, w.looked_at HAVING count(*) >= 0.003 * w.looked_at;
        UPDATE recall_index SET counted = state.messages WHERE agent_id = state.agent_id;
    END LOOP;
END
$$;
"""


def upgrade() -> None:
    """Replace the function that counts."""
    op.get_bind().exec_driver_sql(COUNTING.replace("%", "%%"))
