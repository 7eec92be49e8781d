"""A run before, during and after training: what it needs, keeps and shows."""
