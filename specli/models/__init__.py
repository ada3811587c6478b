"""Which models exist and where their files are.

Names and pairs come from models.toml; files come from this disk, the Hugging Face Hub or a package index. What is
inside a model file does not matter here.
"""
