"""Builds `zoo-reader` and `zoo-mini`: vectors of a real LLM, a tokenizer, random play as text."""
