"""Base layer: errors, files, columns of tables, settings, registries, parsing."""
