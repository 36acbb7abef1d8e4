"""Files here and in object stores: whole or not at all, and one owner at a time."""
