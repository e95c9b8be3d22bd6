"""Starts torchrun for run 20260102-030405-train. As a file, and not as a module by name, so that
nothing in the working folder can stand in for a module of Python's."""

import sys

if __name__ == "__main__":
    from torch.distributed.run import main

    sys.exit(main())
