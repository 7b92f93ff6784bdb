"""Text worlds that an agent practises in. No torch."""
