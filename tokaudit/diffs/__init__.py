"""What changes between two sides of a contract: two models, a model and its lock, a draft and its target."""
