"""DSPy with its JSON adapter, through LiteLLM, which has to be told that the model keeps to a schema: of models that
it does not know DSPy believes no such thing, sends none, and asks in words. The demo model follows no words."""

import dspy
import litellm
from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["dspy"]
NAME = f"openai/{MODEL}"
litellm.register_model({NAME: {"litellm_provider": "openai", "mode": "chat", "supports_response_schema": True}})
model = dspy.LM(
    NAME, engine="litellm", api_base=BASE_URL, api_key=API_KEY, max_tokens=40, cache=False, num_retries=0
)


class Sentiment(dspy.Signature):
    """Is it positive?"""

    text: str = dspy.InputField()
    is_positive: bool = dspy.OutputField()


def test_model():
    assert model(QUESTION)


def test_predict_as_json():
    with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
        assert dspy.Predict(Sentiment)(text="I love it.").is_positive in (True, False)
