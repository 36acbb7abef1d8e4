"""Inspection of trained models: attention, trees, a probe, and figures."""
