"""Progress bars, worker processes, exit statuses and config addresses."""
