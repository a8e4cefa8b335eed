"""Puts the notebooks into the wheel, as `labkit/notebooks`; all else stands in pyproject.toml.

In the repository they lie at the top, where a reader looks for them and JupyterLab opens them.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

NOTEBOOKS = Path("notebooks")
OF_THE_COURSE = (
    "[0-9][0-9]_*.ipynb",
    "*.md",
    "LICENSE",
    "data/*",
    "pictures/*",
    "solutions/[0-9][0-9]_*.py",
)


class BuildWithNotebooks(build_py):
    """An editable install has no need of them: its `labkit` lies beside `notebooks`."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for pattern in OF_THE_COURSE:
            for file in sorted(NOTEBOOKS.glob(pattern)):
                target = Path(self.build_lib, "labkit", file)
                self.mkpath(str(target.parent))
                self.copy_file(str(file), str(target), preserve_mode=False)


setup(cmdclass={"build_py": BuildWithNotebooks})
