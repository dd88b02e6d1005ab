"""Room that is kept on nodes for those who own it: what a reservation has left, and how many pods it can take."""
