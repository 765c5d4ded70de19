"""LangChain's `ChatOpenAI` and `OpenAIEmbeddings`."""

import pydantic
from attempts import API_KEY, BASE_URL, EMBEDDER, MODEL, QUESTION, needs_embedder
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

PACKAGES = ["langchain-openai", "langchain"]
model = ChatOpenAI(base_url=BASE_URL, api_key=API_KEY, model=MODEL, max_tokens=40)


class Mood(pydantic.BaseModel):
    """How a text sounds."""

    is_positive: bool


def test_chat():
    assert model.invoke(QUESTION).content


def test_stream():
    assert "".join(chunk.content for chunk in model.stream(QUESTION))


def test_batch():
    chain = ChatPromptTemplate.from_template("Is this text positive? Answer yes or no.\n\nText: {text}") | model
    assert len(chain.batch([{"text": f"I love {row}."} for row in range(10)])) == 10


def test_structured_output():
    assert isinstance(model.with_structured_output(Mood, method="json_schema").invoke(QUESTION), Mood)


def test_structured_output_by_function_calling():
    assert isinstance(model.with_structured_output(Mood, method="function_calling").invoke(QUESTION), Mood)


def test_bound_tools():
    @tool
    def weather(rainy: bool) -> str:
        """Says the weather."""
        return "rain" if rainy else "sun"

    said = model.bind_tools([weather], tool_choice="weather").invoke(QUESTION)
    result = weather.invoke(said.tool_calls[0])
    assert model.bind_tools([weather]).invoke([("user", QUESTION), said, result])
    chunks = list(model.bind_tools([weather], tool_choice="weather").stream(QUESTION))
    assert sum(chunks[1:], chunks[0]).tool_calls[0]["name"] == "weather"


@needs_embedder
def test_embeddings():
    # By default it sends ids of OpenAI's tokens.
    asked = {"base_url": BASE_URL, "api_key": API_KEY, "model": EMBEDDER, "check_embedding_ctx_length": False}
    first, other = OpenAIEmbeddings(**asked).embed_documents(["A refund is paid.", "The parcel came."])
    assert len(first) == len(other) and first != other
    assert OpenAIEmbeddings(**asked).embed_query("A refund is paid.") == first
