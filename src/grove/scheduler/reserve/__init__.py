"""Reservations as values: who may use one and how many pods it takes (`slots`), which of a node's its pods use
(`housing`), pods that have to be kept apart (`apart`), and what is written (`status`)."""
