"""From the tables of finished runs to statistics and figures; needs neither torch nor the agent."""
