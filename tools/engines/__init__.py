"""Images of the samples in samples/engines, made without Docker: one recipe (image.toml) in each folder."""
