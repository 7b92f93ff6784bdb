"""Sentences, pages and captions made from statistics and figures."""
