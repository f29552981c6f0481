"""Plans for people: tables, differences, pictures."""
