"""Reading and writing files: validation against schemas, YAML, caches, formats of other layers' files."""
