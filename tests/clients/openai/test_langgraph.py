"""LangGraph's ready agent over `ChatOpenAI`."""

import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

PACKAGES = ["langgraph", "langchain-openai"]
model = ChatOpenAI(base_url=BASE_URL, api_key=API_KEY, model=MODEL, max_tokens=40)
ASKED = {"messages": [("user", QUESTION)]}
asked = []


class Mood(pydantic.BaseModel):
    """How a text sounds."""

    is_positive: bool


@tool(return_direct=True)
def weather(rainy: bool) -> str:
    """Says the weather."""
    asked.append(rainy)
    return "rain" if rainy else "sun"


def test_agent():
    # What the model may call is its own affair; that it is asked with tools must be no error.
    assert len(create_react_agent(model, [weather]).invoke(ASKED)["messages"]) > 1


def test_tools():
    agent = create_react_agent(model.bind_tools([weather], tool_choice="weather"), [weather])
    assert agent.invoke(ASKED)["messages"][-1].content in ("rain", "sun")
    assert asked


def test_stream():
    agent = create_react_agent(model, [])
    assert "".join(chunk.content for chunk, _ in agent.stream(ASKED, stream_mode="messages"))


def test_response_format():
    agent = create_react_agent(model, [], response_format=Mood)
    assert isinstance(agent.invoke({"messages": [HumanMessage(QUESTION)]})["structured_response"], Mood)
