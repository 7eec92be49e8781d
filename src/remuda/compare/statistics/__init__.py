"""What a comparison's figures say: pure functions on arrays, with SciPy."""
