"""A stage of Ray Data: each batch is one relQuery.

    from relserve.integrations.ray import RelQueryStage

    dataset.map_batches(
        RelQueryStage,
        fn_constructor_kwargs={"template": "Is this a complaint? {review}", "output": "answer", "choice": ["yes", "no"]},
        batch_format="pyarrow", batch_size=4096, concurrency=2,
    )

Ray makes an object of the class in each worker, so that nothing of Ray is needed here.
"""

from __future__ import annotations

from typing import Any, Optional

from ..client import Client


class RelQueryStage:
    """Adds a column of answers to batches of pandas, Arrow or NumPy columns; `errors_to` names one for errors."""

    def __init__(
        self,
        template: str,
        output: str = "answer",
        errors_to: Optional[str] = None,
        base_url: Optional[str] = None,
        api_key: Optional[str] = None,
        **options: Any,
    ) -> None:
        self._client = Client(base_url, api_key, progress=False)
        self._template = template
        self._output = output
        self._errors_to = errors_to
        self._options = options

    def __call__(self, batch: Any) -> Any:
        result = self._client.relquery(batch, self._template, **self._options)
        if self._errors_to is None:
            result.raise_for_errors()
        told = [row.error.message if row.error else None for row in result.rows]
        batch = _with_column(batch, self._output, result.values)
        return batch if self._errors_to is None else _with_column(batch, self._errors_to, told)


def _with_column(batch: Any, name: str, values: Any) -> Any:
    """The batch with one more column, of texts."""
    if hasattr(batch, "append_column"):
        import pyarrow

        return batch.append_column(name, pyarrow.array(values, type=pyarrow.string()))
    if hasattr(batch, "assign"):
        return batch.assign(**{name: values})
    import numpy

    return {**batch, name: numpy.array(values, dtype=object)}
