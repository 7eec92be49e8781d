"""Ways for master and workers to talk; every one passes the same contract tests."""
