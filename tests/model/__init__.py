"""A model of the real code: every order of what several processes ask of a store, with crashes and lost answers."""
