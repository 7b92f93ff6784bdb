"""A run that lamorel's launcher starts, configured in the words of the paper's repository."""
