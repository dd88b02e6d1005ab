"""What is wrong with an object, and what is filled in: pure functions over decoded JSON."""
