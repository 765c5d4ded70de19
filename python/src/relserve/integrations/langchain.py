"""A runnable of LangChain whose batch is one relQuery, not a request for each input.

    from relserve.integrations.langchain import RelQuery

    chain = RelQuery(template="Is this a complaint? {review}", options={"choice": ["yes", "no"]}) | str.upper
    chain.batch([{"review": "It broke."}, {"review": "I love it."}])
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

from langchain_core.runnables import RunnableConfig, RunnableSerializable
from pydantic import ConfigDict, Field

from ..client import AsyncClient, Client
from ..result import Result
from . import client as used_client

Input = Union[str, Dict[str, Any]]


class RelQuery(RunnableSerializable[Input, str]):
    """A template over inputs: dicts by column, or texts, whose column is `text`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    template: str
    options: Dict[str, Any] = Field(default_factory=dict)
    client: Optional[Client] = Field(default=None, exclude=True)
    async_client: Optional[AsyncClient] = Field(default=None, exclude=True)

    def invoke(self, input: Input, config: Optional[RunnableConfig] = None, **kwargs: Any) -> str:
        """One input, a relQuery of one row."""
        (answer,) = self.batch([input], config, **kwargs)
        return answer

    async def ainvoke(self, input: Input, config: Optional[RunnableConfig] = None, **kwargs: Any) -> str:
        """The same, awaited."""
        (answer,) = await self.abatch([input], config, **kwargs)
        return answer

    def batch(
        self,
        inputs: List[Input],
        config: Any = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> List[Any]:
        """All inputs as one relQuery; `max_concurrency` says nothing, since there is one request."""
        if not inputs:
            return []
        client = self.client or used_client()
        result = client.relquery(list(inputs), self.template, **{**self.options, **kwargs})
        return _answers(result, return_exceptions)

    async def abatch(
        self,
        inputs: List[Input],
        config: Any = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> List[Any]:
        """The same, awaited."""
        if not inputs:
            return []
        options = {**self.options, **kwargs}
        if self.async_client is not None:
            return _answers(await self.async_client.relquery(list(inputs), self.template, **options), return_exceptions)
        async with AsyncClient() as client:
            return _answers(await client.relquery(list(inputs), self.template, **options), return_exceptions)


def _answers(result: Result, return_exceptions: bool) -> List[Any]:
    if not return_exceptions:
        result.raise_for_errors()
    return [row.error or row.value for row in result.rows]
