"""What specli keeps on disk between runs, and how it is written so that a crash loses nothing.

Paths, atomic writes and JSON Lines are here for the whole program; sessions and measured costs are built on them.
"""
