"""Wherry from Python: `import wherry as w`, then `w.Pipeline(name=…, origin=w.origins.Files(…), destinations=[…])`.

Installed, this package is `wherry`. In a checkout on `sys.path`, `from runners import api as w` gives the same.
"""

from typing import TYPE_CHECKING

import destinations
import origins
import runners
import stages

if TYPE_CHECKING:
    from runners import *  # noqa: F403 -- `__all__` of `runners` lists the names
else:
    __getattr__, __dir__ = runners.__getattr__, lambda: sorted({*globals(), *__all__})

__all__ = ["destinations", "origins", "stages"]
__all__ += runners.__all__
