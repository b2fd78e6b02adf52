"""`python -m readyonce`: the command, where its script is not on the path."""

import sys

from readyonce.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
