"""Where two policies differ, token by token, and what a forced opening does."""
