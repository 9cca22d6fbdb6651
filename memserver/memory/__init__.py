"""Working context, queue, summary, recall and archival storage: what the rows mean."""
