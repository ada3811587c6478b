"""A loaded pair of models that answers prompts and conversations."""
