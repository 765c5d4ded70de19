"""A start for the embedding that knows words already: co-occurrence and sentiment, fitted in seconds.

With minutes of training, learning word meaning by back-propagation is the slowest part. Three parts of a row:
singular vectors of positive pointwise mutual information (Levy and Goldberg 2014, "Neural Word Embedding as
Implicit Matrix Factorization"), a token's weight in a ridge regression of the sentiment score on the bag of
tokens, and noise that keeps every token distinct (copying needs that). Forms that differ by case share the first.
"""

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import lsqr, svds

WINDOW = 6
SINGULAR = 88
SENTIMENT = 8


def mutual_information(rows: list[list[int]], vocab: int) -> sparse.csr_matrix:
    """Positive PMI of tokens within WINDOW of each other."""
    left, right = [], []
    for row in rows:
        ids = np.array(row)
        for gap in range(1, WINDOW):
            left.append(ids[:-gap])
            right.append(ids[gap:])
    left, right = np.concatenate(left), np.concatenate(right)
    counts = sparse.coo_matrix((np.ones(len(left)), (left, right)), shape=(vocab, vocab)).tocsr()
    counts = (counts + counts.T).tocoo()
    total = counts.sum()
    # Context smoothing of 0.75, as word2vec's: rare contexts weigh less.
    context = np.asarray(counts.sum(0)).ravel() ** 0.75
    word = np.asarray(counts.sum(1)).ravel()
    value = np.log(counts.data * context.sum() / (word[counts.row] * context[counts.col]) + 1e-12)
    keep = value > 0
    return sparse.csr_matrix((value[keep], (counts.row[keep], counts.col[keep])), shape=(vocab, vocab))


def polarity(rows: list[list[int]], scores: list[float], vocab: int) -> np.ndarray:
    """Each token's weight in a ridge regression of the score on a text's tokens."""
    index = np.concatenate([np.full(len(set(row)), at) for at, row in enumerate(rows)])
    column = np.concatenate([np.fromiter(set(row), int) for row in rows])
    value = np.concatenate([np.full(len(set(row)), len(set(row)) ** -0.5) for row in rows])
    bags = sparse.csr_matrix((value, (index, column)), shape=(len(rows), vocab))
    return lsqr(bags, np.array(scores), damp=1.5, iter_lim=60)[0]


def initial(tokenizer, texts: list[str], scored: list[tuple[str, float]], vocab: int, hidden: int, seed: int) -> np.ndarray:
    """The [vocab, hidden] start; rows have the length that a random start would have."""
    random = np.random.default_rng(seed)
    encode = lambda text: tokenizer.encode(" " + text, add_special_tokens=False).ids  # noqa: E731
    rows = [encode(text) for text in texts]
    u, s, _ = svds(mutual_information([row for row in rows if len(row) > WINDOW], vocab), k=SINGULAR, random_state=seed)
    meaning = u * np.sqrt(s)
    meaning /= np.linalg.norm(meaning, axis=1, keepdims=True) + 1e-6
    weight = polarity([encode(text) for text, _ in scored], [score for _, score in scored], vocab)
    weight = np.clip(weight / weight.std(), -3, 3)

    # Forms of one word, whatever its case and leading space, start alike.
    forms = {}
    for token, at in tokenizer.get_vocab().items():
        forms.setdefault(token.replace("Ġ", "").lower(), []).append(at)
    count = np.zeros(vocab)
    for row in rows:
        np.add.at(count, row, 1)
    for same in forms.values():
        share = count[same] / max(1, count[same].sum())
        meaning[same] = 0.3 * meaning[same] + 0.7 * share @ meaning[same]
        weight[same] = share @ weight[same] if count[same].sum() else 0.0

    noise = random.normal(0, 1, (vocab, hidden))
    out = noise * 0.8
    out[:, :SINGULAR] = 0.35 * noise[:, :SINGULAR] + 0.8 * meaning * np.sqrt(SINGULAR)
    out[:, SINGULAR : SINGULAR + SENTIMENT] = 0.2 * noise[:, :SENTIMENT] + 1.3 * weight[:, None] * np.where(np.arange(SENTIMENT) % 2, 1, -1)
    return (out * 0.8 / np.sqrt(hidden)).astype(np.float32)
