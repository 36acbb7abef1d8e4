"""Experiment of docs/experiment.md on the value of syntax trees."""
