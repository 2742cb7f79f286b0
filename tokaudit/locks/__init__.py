"""The lock: the contract of a model as a small file that is committed where the model is deployed from."""
