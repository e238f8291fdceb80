"""``python -m minitx`` is the command ``minitx``."""

import sys

from minitx.cli import main

if __name__ == "__main__":
    sys.exit(main())
