"""Recorded outcomes given to estimators with other constants, without an agent."""
