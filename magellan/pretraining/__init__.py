"""Builds `zoo-mini`: word vectors of a real LLM, a tokenizer, pretraining on random play."""
