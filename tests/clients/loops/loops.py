"""Whole loops of SDKs over a column, of several tenants at once: the seconds until each loop has its last row.

usage: loops.py ADDRESS CLIENT ROWS=KEY [ROWS=KEY ..]    CLIENT: asyncio, langchain, daft, ray or lotus

Each loop is a process of its own that begins its rows when all processes are ready, and prints one line of JSON:
{"rows": 40, "seconds": 3.2, "answers": 40}. Only the client's own settings are used: a base address and a key.
"""

import asyncio
import json
import multiprocessing
import sys
import time
import urllib.request

SYSTEM = "You label reviews. Answer with one word: good, bad or mixed."
SUBJECTS = ["The soup", "The hotel", "This phone", "The film", "Our guide", "The bike", "The battery", "The staff"]
OPINIONS = ["was far better than we expected", "broke after a week", "was fine", "cost too much for what it is"]


def texts(rows):
    """Rows that differ, so that none is answered with another's."""
    return [
        f"Review {row}: {SUBJECTS[row % len(SUBJECTS)]} {OPINIONS[row % len(OPINIONS)]}."
        for row in range(rows)
    ]


def messages(text):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]


def with_asyncio(address, key, model):
    from openai import AsyncOpenAI

    async def run(rows):
        async with AsyncOpenAI(base_url=f"{address}/v1", api_key=key, timeout=600) as client:
            ask = client.chat.completions.create
            asked = [ask(model=model, messages=messages(text), max_tokens=8, temperature=0) for text in rows]
            return [reply.choices[0].message.content for reply in await asyncio.gather(*asked)]

    return lambda rows: asyncio.run(run(rows))


def with_langchain(address, key, model):
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model=model, base_url=f"{address}/v1", api_key=key, max_tokens=8, temperature=0, timeout=600)
    chain = ChatPromptTemplate.from_messages([("system", SYSTEM), ("user", "{text}")]) | chat

    def run(rows):
        replies = chain.batch([{"text": text} for text in rows], config={"max_concurrency": len(rows)})
        return [reply.content for reply in replies]

    return run


def with_daft(address, key, model):
    import daft
    from daft.ai.openai.provider import OpenAIProvider
    from daft.functions import prompt

    provider = OpenAIProvider("relserve", base_url=f"{address}/v1", api_key=key, timeout=600)

    def run(rows):
        said = prompt(
            daft.col("text"), system_message=SYSTEM, provider=provider, model=model,
            use_chat_completions=True, max_tokens=8, temperature=0,
        )
        return daft.from_pydict({"text": rows}).with_column("said", said).to_pydict()["said"]

    return run


def with_ray(address, key, model):
    import ray
    from openai import OpenAI

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False

    def run(rows):
        from concurrent.futures import ThreadPoolExecutor

        def label(batch):
            client = OpenAI(base_url=f"{address}/v1", api_key=key, timeout=600)

            def ask(text):
                reply = client.chat.completions.create(
                    model=model, messages=messages(text), max_tokens=8, temperature=0
                )
                return reply.choices[0].message.content

            with ThreadPoolExecutor(len(batch["text"])) as pool:
                batch["said"] = list(pool.map(ask, batch["text"]))
            return batch

        table = ray.data.from_items([{"text": text} for text in rows])
        return [row["said"] for row in table.map_batches(label, batch_size=len(rows)).take_all()]

    return run


def with_lotus(address, key, model):
    import lotus
    import pandas
    from lotus.models import LM

    served = LM(
        model=f"openai/{model}", api_base=f"{address}/v1", api_key=key, max_tokens=8, temperature=0,
        max_batch_size=1_000, timeout=600,
    )
    lotus.settings.configure(lm=served)

    def run(rows):
        table = pandas.DataFrame({"text": rows})
        return list(table.sem_map("Label this review in one word, good, bad or mixed: {text}")["_map"])

    return run


CLIENTS = {
    "asyncio": with_asyncio,
    "langchain": with_langchain,
    "daft": with_daft,
    "ray": with_ray,
    "lotus": with_lotus,
}


def loop(client, address, key, rows, model, ready, said):
    run = CLIENTS[client](address, key, model)
    # The client's own first call is its slowest; and what all loops share is computed then, whoever is first.
    run(texts(rows + 1)[rows:])
    ready.wait()
    began = time.monotonic()
    answers = run(texts(rows))
    seconds = round(time.monotonic() - began, 3)
    said.put({"rows": rows, "seconds": seconds, "answers": sum(isinstance(text, str) for text in answers)})


def main():
    address, client, *loops = sys.argv[1:]
    if client not in CLIENTS or not loops:
        sys.exit(__doc__)
    asked = urllib.request.Request(
        f"{address}/v1/models", headers={"Authorization": f"Bearer {loops[0].split('=', 1)[1]}"}
    )
    with urllib.request.urlopen(asked) as reply:
        model = json.load(reply)["data"][0]["id"]
    context = multiprocessing.get_context("spawn")
    # A process that fails breaks the barrier, and the others say so.
    ready, said = context.Barrier(len(loops), timeout=300), context.Queue()
    started = []
    for given in loops:
        rows, key = given.split("=", 1)
        process = context.Process(target=loop, args=(client, address, key, int(rows), model, ready, said))
        process.start()
        started.append(process)
    found = [said.get(timeout=900) for _ in started]
    for process in started:
        process.join()
    for one in sorted(found, key=lambda one: one["rows"]):
        print(json.dumps(one))
    if any(one["answers"] != one["rows"] for one in found):
        sys.exit("a row has no answer")


if __name__ == "__main__":
    main()
