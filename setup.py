"""A wheel carries the data of the commands that read compiled data, and the guard's scripts; all else stands in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


class WithData(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:
            sys.path.insert(0, str(ROOT / "scripts"))
            from readyonce.publish import rule_cache

            rule_cache.write_data(ROOT, Path(self.build_lib) / "readyonce" / "packed")
            for script in ("readyonce_guard.py", "readyonce_compare.py"):
                self.copy_file(str(ROOT / "packages" / "guard" / script), self.build_lib)


# Apart from what `readyonce render` writes to build/.
setup(cmdclass={"build_py": WithData}, options={"build": {"build_base": "build/wheel"}})
