"""``python -m magnetar_cli`` is the ``magnetar`` command."""

from magnetar_cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
