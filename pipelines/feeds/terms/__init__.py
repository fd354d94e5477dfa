"""What all of feeds speak of: schema, columns, records, numbers, texts, paths, names."""
