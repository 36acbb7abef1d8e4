"""HTTP service for trained runs; docs/serving.md describes its interface."""
