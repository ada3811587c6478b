"""What a person sees: commands, options, the chat, messages and progress."""
