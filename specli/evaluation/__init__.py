"""Finding out about a pair of models: does it change the output, and does it make it faster."""
