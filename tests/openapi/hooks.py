"""Drawn requests get past what nearly all of them would fail at: a model that there is none of, a key that another body has, a
deadline that has passed. One in eight stays as it was drawn."""
import itertools

import schemathesis

COUNT = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    if "Idempotency-Key" in case.headers and next(COUNT) % 8:
        del case.headers["Idempotency-Key"]
    body = case.body
    if not isinstance(body, dict):
        return
    if isinstance(body.get("model"), str) and next(COUNT) % 8:
        body["model"] = "relserve-demo"
    if body.get("deadline_ms") == 1 and next(COUNT) % 8:
        body["deadline_ms"] = 20_000
