"""``python -m geminga_functions.instance``: see ``main``."""

from geminga_functions.instance.main import main

main()
