"""Feed files: catalog, rules, mistakes, crosswalks, description."""
