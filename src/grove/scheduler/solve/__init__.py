"""Where a gang goes: bounds, search, exact packing, surplus and score. The door is `place.place`."""
