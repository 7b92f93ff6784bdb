"""What can go wrong in a training job, done on purpose."""
