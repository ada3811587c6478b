"""The interactive chat: its state, its slash commands, and where a person types."""
