"""The models: the only room that imports llama_cpp."""
