"""What serves single studies only."""
