"""Array names, and functions on arrays that several packages use."""
