"""Container images without Docker: layers from Debian packages and pinned wheels, written as OCI archives."""
