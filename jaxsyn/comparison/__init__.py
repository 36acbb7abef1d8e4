"""Many systems, many seeds: training them all, and what the scores are worth."""
