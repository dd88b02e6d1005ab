"""The operator: a package for each kind it reconciles, what they share, and `wiring`, which builds it all."""
