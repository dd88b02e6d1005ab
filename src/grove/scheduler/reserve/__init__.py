"""Reservations as values: who may use one, how many pods it takes (`slots`), and what is written to it (`status`)."""
