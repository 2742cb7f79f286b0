"""The audit inside of a training run: `watcher` holds what all frameworks share, the others are adapters."""
