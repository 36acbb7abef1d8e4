"""The real command on the small corpus: processes, kills, resumes."""
