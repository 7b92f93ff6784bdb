"""From the tables of finished runs to statistics and figures; needs neither torch nor the agent."""

import os

# Figures are files. A notebook names its own backend, which may be absent here, to its processes.
os.environ["MPLBACKEND"] = "agg"
