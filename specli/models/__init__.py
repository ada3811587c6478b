"""Which models exist, and where their files are."""
