"""Starts torchrun for run 20260102-030405-train. As a file, and not as a module by name, so that
nothing in the working folder can stand in for a module of Python's."""

import json
import sys

if __name__ == "__main__":
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    try:
        sys.exit(main())
    except ChildFailedError as err:
        # torchrun knows who died first: it looked before it ended the others.
        # One that a signal ended did not end because of the others.
        killed = [(r, f) for r, f in err.failures.items() if f.exitcode < 0]
        rank, failure = min(killed, key=lambda k: k[1].timestamp, default=err.get_first_failure())
        first = {"rank": rank, "exit_code": failure.exitcode}
        print(json.dumps({"first_failure": first}), file=sys.stderr, flush=True)
        raise
    except SignalException as err:
        print(json.dumps({"got_signal": int(err.sigval)}), file=sys.stderr, flush=True)
        raise
