"""What a person sees: commands, messages, progress."""
