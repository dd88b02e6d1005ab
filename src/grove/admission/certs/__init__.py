"""Certificates of the webhook server: made, renewed, read."""
