"""Fetches source distributions from the index that pip is set to, without building them, and unpacks them.

usage: python fetch.py FOLDER NAME==VERSION ..

`pip download` builds a source distribution to learn what it needs, and vLLM's build needs PyTorch. So pip finds and
checks the file here, and nothing of it is run. What it takes of pip is not public: `requirements.txt` pins pip.
"""

import sys
import tarfile
import tempfile
from pathlib import Path

from pip._internal.commands import create_command
from pip._internal.index.package_finder import PackageFinder
from pip._internal.models.format_control import FormatControl
from pip._internal.network.download import Downloader


def fetch(folder, requirement):
    """Unpacks `requirement` into `folder`/NAME."""
    name, version = requirement.split("==")
    command = create_command("download")
    with command.main_context():
        options, _ = command.parse_args([requirement])
        options.format_control = FormatControl(no_binary={name})
        session = command.get_default_session(options)
        finder: PackageFinder = command._build_package_finder(options, session)
        [link] = {one.link for one in finder.find_all_candidates(name) if str(one.version) == version}
        with tempfile.TemporaryDirectory() as scratch:
            path, _ = Downloader(session, "off")(link, scratch)
            link.as_hashes().check_against_path(path)
            with tarfile.open(path) as archive:
                archive.extractall(scratch, filter="data")
            Path(scratch, path.removesuffix(".tar.gz")).rename(Path(folder, name))


for requirement in sys.argv[2:]:
    fetch(Path(sys.argv[1]), requirement)
