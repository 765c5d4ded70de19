"""LOTUS's operators over a table, by its `LM`, which is LiteLLM's. A cascade asks a helper first and reads the log
probabilities of its two words. The demo model would say others, so it is kept to them; its tokens of words begin with a
blank, which the cascade is told (`output_tokens`)."""

import logging

import litellm
import lotus
import pandas
from attempts import API_KEY, BASE_URL, MODEL
from lotus.models import LM
from lotus.types import CascadeArgs

PACKAGES = ["lotus-ai", "litellm"]
SUBJECTS, OPINIONS = ["soup", "hotel", "film", "bike"], ["good", "bad", "fine"]
TABLE = pandas.DataFrame({"review": [f"The {subject} was {opinion}." for subject in SUBJECTS for opinion in OPINIONS]})
CLAIM = "{review} is positive"
WORDS = {"structured_outputs": {"choice": ["True", "False"]}}
# Both say of every row that the model has no price, or that its answer was cut.
litellm.suppress_debug_info = True
logging.disable(logging.WARNING)


def model(**settings):
    return LM(f"openai/{MODEL}", api_base=BASE_URL, api_key=API_KEY, max_ctx_len=512, max_tokens=16, **settings)


judge = model(extra_body=WORDS)
lotus.settings.configure(lm=model(), helper_lm=judge)


def said_by_judge():
    asked = [[{"role": "user", "content": f"Claim: {review}"}] for review in TABLE["review"]]
    return judge(asked, logprobs=True)


def cascade(**settings):
    """How many rows the helper decided, and how many the model."""
    kept, counts = TABLE.sem_filter(
        CLAIM, cascade_args=CascadeArgs(**settings), output_tokens=(" True", " False"), return_stats=True
    )
    assert set(kept.index) <= set(TABLE.index)
    return counts["filters_resolved_by_helper_model"], counts["filters_resolved_by_large_model"]


def test_sem_filter():
    with lotus.settings.context(lm=judge):
        told = TABLE.sem_filter(CLAIM, return_all=True, return_raw_outputs=True)
        kept = TABLE.sem_filter(CLAIM)
    assert list(told["_filter"]) == [word == "True" for word in told["raw_output_filter"]]
    assert list(kept.index) == list(told.index[told["_filter"]])


def test_sem_map():
    told = TABLE.sem_map("Is {review} positive? Answer yes or no.")
    assert len(told) == len(TABLE) and all(told["_map"])


def test_sem_extract():
    assert len(TABLE.sem_extract(["review"], {"mood": "positive or negative"})) == len(TABLE)


def test_sem_agg():
    told = TABLE.sem_agg("Say what each {review} is about.")
    assert len(told) == 1 and told["_output"][0]


def test_sem_topk():
    told = TABLE.sem_topk("Which {review} is more positive?", K=3)
    assert len(told) == 3 and set(told["review"]) <= set(TABLE["review"])


def test_sem_join():
    moods = pandas.DataFrame({"mood": ["positive", "negative"]})
    with lotus.settings.context(lm=judge):
        told = TABLE.sem_join(moods, "{review} is {mood}")
    assert len(told) <= 2 * len(TABLE) and set(told["mood"]) <= set(moods["mood"])


def test_log_probabilities():
    told = judge.format_logprobs_for_filter_cascade(said_by_judge().logprobs, output_tokens=(" True", " False"))
    assert len(told.positive_probs) == len(TABLE) and all(0 < chance < 1 for chance in told.positive_probs)


def test_cascade():
    by_helper, by_model = cascade(filter_pos_cascade_threshold=0.7, filter_neg_cascade_threshold=0.3)
    assert by_helper and by_model and by_helper + by_model == len(TABLE)


def test_cascade_that_learns_its_thresholds():
    assert sum(cascade(sampling_percentage=0.5, cascade_IS_random_seed=1)) == len(TABLE)


def test_tokens_that_spell_the_answer():
    said = said_by_judge()
    for answer, tokens in zip(said.outputs, said.logprobs):
        assert "".join(told.token for told in tokens).strip() == answer, (answer, [told.token for told in tokens])
