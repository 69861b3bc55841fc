"""``python -m geminga_cli`` is the ``geminga`` command."""

from geminga_cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
