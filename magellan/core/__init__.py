"""What every room stands on: errors, files, columns of tables, settings, registries, parsing."""
