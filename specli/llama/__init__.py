"""Models in memory, through llama.cpp.

The only package that imports llama_cpp: it reads GGUF files, loads models, feeds them tokens, rewinds their caches, and
turns text into tokens and back. How the next token is chosen does not matter here.
"""
