"""Settings and ablation tables of the papers."""
