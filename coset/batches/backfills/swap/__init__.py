"""The swap: which rows readers see, decided and carried out in every table."""
