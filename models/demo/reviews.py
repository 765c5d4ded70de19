"""Human-rated sentences, and the sentiment lexicon, of the MIT-licensed vaderSentiment package.

Hutto and Gilbert, "VADER: A Parsimonious Rule-based Model for Sentiment Analysis of Social Media Text",
ICWSM 2014: each sentence of four sources has the mean of twenty people's ratings from -4 to 4. The source
distribution carries them; `pip download` fetches it, its digest is checked. Splits are by document.
"""

import hashlib
import html
import io
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

SDIST = "vaderSentiment-3.3.2.tar.gz"
SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
SOURCES = {"movies": "movieReviewSnippets", "products": "amazonReviewSnippets",
           "tweets": "tweets", "editorials": "nytEditorialSnippets"}


@dataclass(frozen=True)
class Review:
    """One rated sentence."""

    source: str
    key: str
    score: float
    text: str
    held_out: bool


def fetch(folder: Path) -> Path:
    """The source distribution, downloaded unless it lies there."""
    path = folder / SDIST
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--no-binary", ":all:", "--no-deps",
                        "-d", str(folder), "vaderSentiment==3.3.2"], check=True)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{path}: sha256 is {digest}, expected {SHA256}")
    return path


def clean(text: str) -> str:
    """Undoes the collection's entities, doubled quotes and removed hyphens' spaces."""
    text = html.unescape(text).replace("''", '"').replace("http://url_removed", "").replace("@anonymous", "@user")
    return re.sub(r"\s+", " ", text).strip()


def decode(line: bytes) -> str:
    """UTF-8 where it is that, else Windows' Latin-1: the files mix both."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("cp1252", "replace")


def load(folder: Path) -> tuple[list[Review], dict[str, float]]:
    """All rated sentences with their split, and the lexicon (word -> mean valence)."""
    outer = tarfile.open(fetch(folder))
    root = "vaderSentiment-3.3.2/"
    inner = tarfile.open(fileobj=io.BytesIO(outer.extractfile(
        root + "additional_resources/hutto_ICWSM_2014.tar.gz").read()))
    reviews, seen = [], set()
    for source, file in SOURCES.items():
        raw = inner.extractfile(f"hutto_ICWSM_2014/{file}_GroundTruth.txt").read()
        for line in raw.splitlines():
            parts = decode(line).split("\t")
            if len(parts) != 3:
                continue
            text = clean(parts[2])
            if len(text) < 4 or "\ufffd" in text or text.lower() in seen:
                continue
            seen.add(text.lower())
            # All sentences of one document fall on one side.
            document = source + ":" + parts[0].split("_")[0]
            held_out = hashlib.sha256(document.encode()).digest()[0] < 256 * 0.12
            reviews.append(Review(source, parts[0], float(parts[1]), text, held_out))
    lexicon = {}
    for line in outer.extractfile(root + "vaderSentiment/vader_lexicon.txt").read().decode().splitlines():
        word, mean, *_ = line.split("\t")
        if re.fullmatch(r"[a-z]{3,14}", word):
            lexicon[word] = float(mean)
    return reviews, lexicon
