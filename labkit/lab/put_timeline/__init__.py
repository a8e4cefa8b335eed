"""What happens around `queue.put(tensor)`: who pickles it when, and from when on it is shared.

    put_timeline.show(put_timeline.watch())

`watching` puts a tensor and looks at `tensor.is_shared()` until it turns; `drawing` draws that.
After it: notebook 04.
"""

from __future__ import annotations

from labkit.lab.put_timeline.drawing import show
from labkit.lab.put_timeline.watching import Put, watch

__all__ = ["Put", "show", "watch"]
