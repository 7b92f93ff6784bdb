"""How fast this code is, beside what the released code took: `python -m magellan bench`."""
