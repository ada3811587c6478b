"""The algorithm: pure Python and numpy. No llama.cpp, no terminal, no files.

Read in this order: `sampling` (logits become a distribution), `verification` (which draft tokens are kept), `drafting`
(where they come from), `schedule` (how many), `costs` (what passes take), `loop` (the rounds), `metrics` (the counts).
"""
