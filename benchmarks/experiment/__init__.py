"""The experiment of docs/experiment.md: what are trees worth?"""
