"""Gives each of gloo's process groups one thread where torch gives it two, in any script, without a change to it:

    PYTHONPATH=one-gloo-thread torchrun --nproc-per-node 2 repro.py reported

Python imports a module of this name by itself when it starts. One thread does what it is given in order. torch has no
setting for it.
"""

import importlib.util
import sys
from datetime import timedelta

WHERE = "torch.distributed.distributed_c10d"


def one_thread(Gloo):
    made = Gloo.__init__

    def make(self, store, rank, size, timeout=timedelta(minutes=30)):
        options = Gloo._Options()
        options._devices, options._timeout = [Gloo.create_default_device()], timeout
        options._threads = 1
        made(self, store, rank, size, options)

    Gloo.__init__ = make


class WhenImported:
    """Finds torch's module as always, and changes it once it is loaded: importing torch here would slow everything."""

    def find_spec(self, name, path=None, target=None):
        if name != WHERE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            one_thread(module.ProcessGroupGloo)

        spec.loader.exec_module = load_and_change
        return spec


sys.meta_path.insert(0, WhenImported())
