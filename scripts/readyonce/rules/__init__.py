"""The compilers: from the catalogue to the rules that `diagnose` and `lint` read."""
