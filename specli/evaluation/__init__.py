"""Finding out about a pair of models: does drafting change the output, and does it make it faster.

Audits, comparisons and tuning return plain data; how that is shown does not matter here.
"""
