"""The command `readyonce`."""
