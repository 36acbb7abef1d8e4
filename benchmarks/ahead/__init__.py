"""Programs for machines that are not there: compiled ahead, then read."""
