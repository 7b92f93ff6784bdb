"""Fault injection into training jobs."""
