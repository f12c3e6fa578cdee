"""Being here, it puts this folder on the path: the tests import their helpers from it."""
