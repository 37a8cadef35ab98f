"""One readable file per experiment of the study."""
