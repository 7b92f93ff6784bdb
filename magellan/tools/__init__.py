"""Commands for trained runs: watch, replay, embed, export."""
