"""Analyses of single studies."""
