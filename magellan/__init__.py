"""MAGELLAN bench: goal samplers for LLM agents, compared on equal terms."""

__version__ = "0.1.0"
