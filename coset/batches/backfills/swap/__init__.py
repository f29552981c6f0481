"""The swap: decides which rows readers see, and carries that out in every table."""
