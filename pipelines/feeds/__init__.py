"""How exports are described and read."""
