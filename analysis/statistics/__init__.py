"""Statistics of combined tables: measures of a run, intervals, tests."""
