"""The operator: a room for each kind it reconciles, what they share, and `wiring`, which builds it all."""
