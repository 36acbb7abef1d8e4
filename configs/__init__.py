"""Settings. `base.py` lists every option; a data set's file says what differs."""
