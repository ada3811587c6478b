"""Evaluating a pair of models: whether the draft changes the output, and whether it makes the target faster."""
