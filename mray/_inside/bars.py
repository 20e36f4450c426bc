"""Progress bars of many processes, drawn by the driver.

====================  ==================================================================================================
instance              Return the bars that this process draws.
safe_print            Print above the bars.
tqdm                  A bar, in any process of a session.
====================  ==================================================================================================
"""

from mray._runtime.session.progress_bars import instance, safe_print, tqdm

__all__ = ["instance", "safe_print", "tqdm"]
