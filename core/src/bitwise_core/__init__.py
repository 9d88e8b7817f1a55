"""Say, pin and prove which bits a GPU kernel returns.

The package itself imports nothing: take what you need from its modules.
"""
