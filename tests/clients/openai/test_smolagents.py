"""smolagents' `OpenAIModel`, alone and under a `ToolCallingAgent` whose prompts are cut to the demo model's room."""

from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from smolagents import ChatMessage, OpenAIModel, ToolCallingAgent, tool

PACKAGES = ["smolagents", "openai"]
model = OpenAIModel(MODEL, api_base=BASE_URL, api_key=API_KEY, max_tokens=40)
MESSAGES = [ChatMessage("user", [{"type": "text", "text": QUESTION}])]


@tool
def weather(rainy: bool) -> str:
    """Says the weather.

    Args:
        rainy: Whether it rains.
    """
    return "rain" if rainy else "sun"


def test_chat():
    assert model.generate(MESSAGES).content


def test_stream():
    assert "".join(delta.content or "" for delta in model.generate_stream(MESSAGES))


def test_tools():
    # It asks with `tool_choice` "required".
    call = model.generate(MESSAGES, tools_to_call_from=[weather]).tool_calls[0]
    assert call.function.name == "weather"


def test_agent():
    agent = ToolCallingAgent([weather], model, max_steps=1, verbosity_level=0)
    agent.prompt_templates["system_prompt"] = "Call tools."
    agent.run(QUESTION)
    assert agent.memory.steps[1].tool_calls[0].name in ("weather", "final_answer")
