"""Questions asked of runs: who fools whom, how likely the data are, what the curves say."""
