"""How fast this code is on this machine: `python -m magellan bench`."""
