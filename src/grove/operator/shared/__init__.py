"""What the packages of several kinds use: layout, diff, writers, claims."""
