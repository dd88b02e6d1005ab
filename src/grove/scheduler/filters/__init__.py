"""Which nodes a pod or a gang may use at all, as masks over rows."""
