"""LOTUS's operators by a model that sends each batch as one relQuery."""

import logging
import warnings

import lotus
import pandas
import pytest
import relserve
from relserve.integrations.lotus import RelQueryLM

TABLE = pandas.DataFrame({"review": [f"The film number {number} is fine." for number in range(20)]})
WORDS = {"structured_outputs": {"choice": ["True", "False"]}}
# It says of every row that the model has no price.
logging.disable(logging.WARNING)


@pytest.fixture
def model(proxy):
    def make(**settings):
        name = relserve.Client().models()[0]["id"]
        model = RelQueryLM(name, base_url=proxy.url, max_ctx_len=512, max_tokens=8, **settings)
        lotus.settings.configure(lm=model)
        return model

    return make


@pytest.fixture
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def said(text):
    return [{"role": "system", "content": "Say the last word."}, {"role": "user", "content": text}]


def test_a_filter_is_one_relquery(model, proxy, no_warnings):
    judge = model(extra_body=WORDS)
    told = TABLE.sem_filter("{review} is positive", return_all=True, return_raw_outputs=True)
    assert proxy.counts() == [("/v1/relqueries", len(TABLE))]
    assert list(told["_filter"]) == [word == "True" for word in told["raw_output_filter"]]
    assert judge.stats.physical_usage.total_tokens > 0
    ((_, body),) = proxy.asked
    assert body["constraint"] == WORDS["structured_outputs"] and body["temperature"] == 0
    assert "claim" in body["system"] and TABLE["review"][19] in body["rows"][19][0]


def test_a_map_is_one_relquery_and_says_what_chats_say(model, proxy):
    lm = model()
    told = TABLE.sem_map("Is {review} positive? Answer yes or no.")
    assert proxy.counts() == [("/v1/relqueries", len(TABLE))]
    ((_, body),) = proxy.asked
    for row, (text,) in list(enumerate(body["rows"]))[:3]:
        chat = [{"role": "system", "content": body["system"]}, {"role": "user", "content": text}]
        assert super(RelQueryLM, lm).__call__([chat], show_progress_bar=False).outputs == [told["_map"][row]]


def test_an_extraction_is_one_relquery(model, proxy, no_warnings):
    model()
    assert len(TABLE.sem_extract(["review"], {"mood": "positive or negative"})) == len(TABLE)
    assert proxy.counts() == [("/v1/relqueries", len(TABLE))]


def test_a_form_of_json_is_kept_to(model, proxy, no_warnings):
    schema = {"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"]}
    schema["additionalProperties"] = False
    wanted = {"type": "json_schema", "json_schema": {"name": "mood", "schema": schema}}
    told = model()([said("It is fine.")], show_progress_bar=False, response_format=wanted, max_completion_tokens=20)
    assert told.outputs[0].startswith("{") and proxy.counts() == [("/v1/relqueries", 1)]


def test_what_a_relquery_has_no_word_for_goes_as_chats_with_a_warning(model, proxy):
    lm = model(extra_body=WORDS)
    other = [{"role": "system", "content": "Say nothing."}, {"role": "user", "content": "b"}]
    parts = [{"role": "user", "content": [{"type": "text", "text": "c"}]}]
    example = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "True"}]
    for why, conversations, options in [
        ("begin differently", [said("a"), other], {}),
        ("more than a system message", [example + said("a")[1:]], {}),
        ("parts", [parts], {}),
        ("no `logprobs`", [said("a"), said("b")], {"logprobs": True}),
    ]:
        proxy.asked.clear()
        with pytest.warns(UserWarning, match=why):
            told = lm(conversations, show_progress_bar=False, **options)
        assert set(told.outputs) <= {"True", "False"}
        assert (told.logprobs is not None) == bool(options)
        assert proxy.counts() == [("/v1/chat/completions", 1)] * len(conversations)


def test_an_error_of_a_row_is_raised(model):
    with pytest.raises(relserve.RowError):
        model()([said("word " * 5000), said("fine")], show_progress_bar=False)


def test_no_rows_are_no_request(model, proxy):
    assert model()([]).outputs == [] and proxy.asked == []
