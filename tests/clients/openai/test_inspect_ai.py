"""Inspect's models `openai/`, by chat completions."""

import asyncio
import tempfile

import openai  # noqa: F401 (Inspect asks for it)
from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ResponseSchema, get_model
from inspect_ai.scorer import includes
from inspect_ai.tool import ToolInfo, ToolParams
from inspect_ai.util import json_schema

PACKAGES = ["inspect-ai", "openai"]
CONFIG = {"max_tokens": 40}


def model(**options):
    return get_model(f"openai/{MODEL}", base_url=BASE_URL, api_key=API_KEY, responses_api=False, **options)


def test_evaluation():
    samples = [Sample(input=QUESTION, target="yes") for _ in range(5)]
    task = Task(dataset=samples, scorer=includes(), config=GenerateConfig(**CONFIG))
    log = eval(task, model=model(), display="none", log_dir=tempfile.mkdtemp())[0]
    assert log.status == "success" and log.results.completed_samples == 5


def test_response_schema():
    schema = ResponseSchema(name="mood", json_schema=json_schema(bool))
    schema.json_schema.type, schema.json_schema.properties = "object", {"is_positive": json_schema(bool)}
    schema.json_schema.required, schema.json_schema.additionalProperties = ["is_positive"], False
    said = asyncio.run(model().generate(QUESTION, config=GenerateConfig(response_schema=schema, **CONFIG)))
    assert said.completion.replace(" ", "").startswith('{"is_positive":')


def test_tools():
    parameters = ToolParams(properties={"rainy": json_schema(bool)}, required=["rainy"])
    tool = ToolInfo(name="weather", description="Says the weather.", parameters=parameters)
    said = asyncio.run(model().generate(QUESTION, tools=[tool], tool_choice="any", config=GenerateConfig(max_tokens=60)))
    assert said.message.tool_calls[0].arguments["rainy"] in (True, False)
