"""What the rooms of several kinds use: layout, diff, writers, claims."""
