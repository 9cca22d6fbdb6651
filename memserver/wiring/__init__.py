"""The composition root: from settings to collaborators. Nothing else builds anything."""
