"""What a launch sets: shell commands, configuration files and Python, read into options."""
