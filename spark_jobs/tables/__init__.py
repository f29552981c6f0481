"""How the files of result tables are laid out."""
