"""An import that is thrown away, and what came of it."""
