"""Reservations as values: who may use one, how many pods it takes and which its pods use (`slots`), pods that have to
be kept apart (`apart`), and what is written (`status`)."""
