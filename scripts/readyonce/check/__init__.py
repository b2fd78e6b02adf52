"""What `readyonce check` asks of the catalogue and its pages."""
