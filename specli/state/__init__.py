"""What specli keeps on disk between runs: sessions, costs, experience."""
