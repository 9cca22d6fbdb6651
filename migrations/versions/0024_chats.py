"""Chats of one agent, and agents that were made for the users of another.

`chat` is the one that a message of the user's belongs to, and `chat_note` what its prompt says of a change of chats.
"""

from alembic import op

revision = "0024"
down_revision = "0023"

ADD = """
ALTER TABLE messages ADD COLUMN chat text, ADD COLUMN chat_note text;
ALTER TABLE agents ADD COLUMN template_id uuid REFERENCES agents ON DELETE SET NULL,
                   ADD COLUMN template_user text;
CREATE UNIQUE INDEX agents_of_template ON agents (template_id, template_user) WHERE template_id IS NOT NULL;
"""


def upgrade() -> None:
    """Add the columns; nothing that is there has them."""
    op.execute(ADD)
