"""Runs: environments, launches, evidence and its address."""
